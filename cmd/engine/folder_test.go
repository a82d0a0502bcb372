package main

import (
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

func TestFolderIdentity(t *testing.T) {
	dir := t.TempDir()
	mine := owner{"cluster-a", "storage s1"}
	first, err := folderIdentity(dir, mine)
	if err != nil || first == "" {
		t.Fatal(first, err)
	}
	if again, err := folderIdentity(dir, mine); err != nil || again != first {
		t.Errorf("the same folder is %q, then %q (%v)", first, again, err)
	}
	for _, other := range []owner{{"cluster-b", "storage s1"}, {"cluster-a", "storage s2"}} {
		_, err := folderIdentity(dir, other)
		if api.CodeOf(err) != api.CodeClusterDiffer || !strings.Contains(err.Error(), "belongs to storage s1") {
			t.Errorf("%v on the folder of %v: %v", other, mine, err)
		}
	}
	if fresh, err := folderIdentity(t.TempDir(), mine); err != nil || fresh == first {
		t.Errorf("another folder is %q too (%v)", fresh, err)
	}
}
