//go:build !wasip1

package guest

import (
	"embed"
	"strings"
)

// Source holds the files of this package. The programs build guests with them where there is no network;
// a guest itself has no use for it.
//
//go:embed *.go
var Source embed.FS

// Files lists the files of Source that a guest is built of.
func Files() []string {
	entries, err := Source.ReadDir(".")
	if err != nil {
		return nil // it is in the binary
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); name != "embed.go" && !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
	}
	return names
}
