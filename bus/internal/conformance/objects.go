package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pinion-mr/pinion/api"
)

func readObject(ctx context.Context, t *testing.T, o Objects, name string) []byte {
	t.Helper()
	r := must(o.Get(ctx, name))(t)
	data := must(io.ReadAll(r))(t)
	check(t, r.Close())
	return data
}

func objects(t *testing.T, p Peer) {
	ctx := within(t)
	o := must(p.Objects(ctx, "MODULES", true))(t)
	if got := must(o.List(ctx))(t); len(got) != 0 {
		t.Fatalf("an empty store lists %v", got)
	}
	_, err := o.Get(ctx, "none")
	wantCode(t, err, api.CodeNotFound)
	big := make([]byte, 3<<20+17)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(big); i++ {
		big[i] = byte(r.Uint32())
	}
	check(t, o.Put(ctx, "big file/ä", iotest.OneByteReader(bytes.NewReader(big[:5000]))))
	check(t, o.Put(ctx, "big file/ä", bytes.NewReader(big))) // replaced
	check(t, o.Put(ctx, "empty", strings.NewReader("")))
	check(t, o.Put(ctx, "a", strings.NewReader("A")))

	other := must(p.Again(t).Objects(ctx, "MODULES", false))(t)
	if got := readObject(ctx, t, other, "big file/ä"); !bytes.Equal(got, big) {
		t.Fatalf("%d bytes came back, of %d, or others", len(got), len(big))
	}
	if got := readObject(ctx, t, other, "empty"); len(got) != 0 {
		t.Fatalf("an empty object has %d bytes", len(got))
	}
	r := must(other.Get(ctx, "big file/ä"))(t)
	must(io.ReadFull(r, make([]byte, 10)))(t)
	check(t, r.Close()) // half read

	failing := io.MultiReader(bytes.NewReader(big[:1<<20]), iotest.ErrReader(errEnough))
	if err := o.Put(ctx, "half", failing); !errors.Is(err, errEnough) {
		t.Fatalf("a put from a failing reader: %v", err)
	}
	want := []api.ObjectInfo{{Name: "a", Size: 1}, {Name: "big file/ä", Size: uint64(len(big))}, {Name: "empty"}}
	if got := must(o.List(ctx))(t); !slices.Equal(got, want) {
		t.Fatalf("listed %v, want %v", got, want)
	}
	check(t, o.Delete(ctx, "a"))
	check(t, o.Delete(ctx, "a"))
	check(t, o.Delete(ctx, "none"))
	for name, want := range map[string]bool{"a": false, "half": false, "none": false, "empty": true} {
		if got := must(o.Has(ctx, name))(t); got != want {
			t.Errorf("Has(%q) is %v", name, got)
		}
	}
	if got := must(o.List(ctx))(t); !slices.Equal(got, want[1:]) {
		t.Fatalf("listed %v, want %v", got, want[1:])
	}
	wantCode(t, o.Put(ctx, "", strings.NewReader("")), api.CodeBadRequest)
}
