package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/pmr/node"
)

// owner is whose a folder is.
type owner struct {
	cluster string // id that was minted when the cluster was created
	role    string // "storage s1"
}

// folderIdentity tells a folder from every other, so that a role that restarts on its own folder is known from
// a rival of the same name. The folder of another cluster or role is refused: its records may be the last copy.
func folderIdentity(dir string, mine owner) (string, error) {
	id, found, err := readIdentity(dir)
	switch {
	case err != nil:
		return "", err
	case id != "" && found != mine:
		return "", api.Errorf(api.CodeClusterDiffer, "the folder %s belongs to %s of cluster %.8s; this is %s of cluster %.8s",
			dir, found.role, found.cluster, mine.role, mine.cluster).WithHint(otherFolder)
	case id != "":
		return id, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	id = rand.Text()
	return id, os.WriteFile(filepath.Join(dir, identityFile), fmt.Appendf(nil, "%s\n%s\n%s\n", id, mine.cluster, mine.role), 0o644)
}

const (
	identityFile = "identity"
	otherFolder  = "give another --dir; if the cluster has lost its NATS server's files, restore them: this folder may hold the last copy of its records"
)

// readIdentity reads whose a folder is; id is empty if it is nobody's yet.
func readIdentity(dir string) (id string, found owner, err error) {
	text, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", found, err
	}
	if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); len(lines) == 3 {
		return lines[0], owner{lines[1], lines[2]}, nil
	}
	return "", found, nil
}

// checkFolder refuses the folder of a router whose cluster is not on the server, before a new cluster is made there in
// its place.
func checkFolder(ctx context.Context, b *bus.Bus, dir, role string) error {
	if dir == "" {
		return nil
	}
	id, found, err := readIdentity(dir)
	if err != nil || id == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	state, err := b.KV(ctx, kvState, false, 0)
	if err == nil {
		_, err = node.LoadSettings(ctx, state)
	}
	if api.CodeOf(err) == api.CodeNoSuchCluster {
		return api.Errorf(api.CodeClusterDiffer, "the folder %s belongs to %s of cluster %.8s; the NATS server holds no cluster of the name that %s was given",
			dir, found.role, found.cluster, role).WithHint(otherFolder)
	}
	return nil // openCluster tells of other errors, folderIdentity of another cluster
}
