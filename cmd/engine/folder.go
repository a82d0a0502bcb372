package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pinion-mr/pinion/api"
)

// owner is whose a folder is.
type owner struct {
	cluster string // id that was minted when the cluster was created
	role    string // "storage s1"
}

// folderIdentity tells a folder from every other, so that a role that restarts on its own folder is known from
// a rival of the same name. The folder of another cluster or role is refused: its records may be the last copy.
func folderIdentity(dir string, mine owner) (string, error) {
	path := filepath.Join(dir, "identity")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) == 3 {
		if found := (owner{lines[1], lines[2]}); found != mine {
			return "", api.Errorf(api.CodeClusterDiffer, "the folder %s belongs to %s of cluster %.8s; this is %s of cluster %.8s",
				dir, found.role, found.cluster, mine.role, mine.cluster).
				WithHint("give another --dir; if the cluster has lost its NATS server's files, restore them: this folder may hold the last copy of its records")
		}
		return lines[0], nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	id := rand.Text()
	return id, os.WriteFile(path, fmt.Appendf(nil, "%s\n%s\n%s\n", id, mine.cluster, mine.role), 0o644)
}
