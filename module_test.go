package pinion

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

func TestAddModuleStoresTheBytesFirst(t *testing.T) {
	c := newCluster(t, sixteen)
	file := []byte("\x00asm and so on")
	sum := sha256.Sum256(file)
	digest := hex.EncodeToString(sum[:])
	store, err := c.router.Objects(t.Context(), moduleStore, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer(c, "module.add", func(req api.ModuleAddRequest) (api.Module, error) {
		r, err := store.Get(t.Context(), req.Digest)
		if err != nil {
			return api.Module{}, err
		}
		defer func() { _ = r.Close() }()
		got, err := io.ReadAll(r)
		if err != nil || string(got) != string(file) {
			t.Errorf("the store holds %q, %v", got, err)
		}
		return api.Module{Name: req.Name, Version: req.Version, Reduce: req.Reduce, Digest: req.Digest}, nil
	})
	for range 2 {
		m, err := c.client.AddModule(t.Context(), "words", "3", "sum", file)
		if err != nil {
			t.Fatal(err)
		}
		if m.Digest != digest || m.Name != "words" || m.Version != "3" || m.Reduce != "sum" {
			t.Errorf("added %+v", m)
		}
	}
}

func TestPutNamesTheLimitOfRecords(t *testing.T) {
	c := newCluster(t, api.Settings{Buckets: 1, MaxRecord: 500_000})
	answer(c, "record.put", func(api.PutRequest) (api.SeqReply, error) { return api.SeqReply{Seq: 7}, nil })
	_, err := c.client.Put(t.Context(), "", []byte("k"), make([]byte, 2<<20))
	wantCode(t, err, api.CodeRecordTooBig)
	seq, err := c.client.Put(t.Context(), "", []byte("k"), []byte("v"))
	if err != nil || seq != 7 {
		t.Errorf("Put: %d, %v", seq, err)
	}
}
