package buckets

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOwnershipRules(t *testing.T) {
	// Bucket 3 belongs to s1 since 10; the last fences are 5 (s1) and 6 (s2).
	start := func() *Table {
		table := NewTable(4)
		table.Fence(5, Fence{Storage: "s1"})
		table.Fence(6, Fence{Storage: "s2"})
		if v, err := table.Own(10, Own{Bucket: 3, Owner: "s1", FenceDst: 5}); v != Applied || err != nil {
			t.Fatalf("first owner: %v, %v", v, err)
		}
		return table
	}
	for _, tc := range []struct {
		name string
		own  Own
		want Verdict
		says string
	}{
		{"move", Own{Bucket: 3, Prev: 10, Owner: "s2", FenceSrc: 5, FenceDst: 6}, Applied, ""},
		{"takeover, no fence of the source", Own{Bucket: 3, Prev: 10, Owner: "s2", FenceDst: 6}, Applied, ""},
		{"no fences named", Own{Bucket: 3, Prev: 10, Owner: "s3"}, Applied, ""},
		{"a free bucket", Own{Bucket: 0, Owner: "s2"}, Applied, ""},
		{"somebody was first", Own{Bucket: 3, Owner: "s2", FenceDst: 6}, Void, "bucket 3 belongs to s1 since 10; s2 built on 0"},
		{"built on an older one", Own{Bucket: 3, Prev: 9, Owner: "s2"}, Void, "s2 built on 9"},
		{"built on one not seen", Own{Bucket: 3, Prev: 11, Owner: "s2"}, Gap, "builds on generation 11, but 10 is the last seen"},
		{"free, built on one not seen", Own{Bucket: 0, Prev: 1, Owner: "s2"}, Gap, "but 0 is the last seen"},
		{"old fence of the destination", Own{Bucket: 3, Prev: 10, Owner: "s2", FenceSrc: 5, FenceDst: 4}, Void, "fence 4 of s2 was passed by 6"},
		{"fence not seen of the destination", Own{Bucket: 3, Prev: 10, Owner: "s2", FenceDst: 7}, Void, "fence 7 of s2"},
		{"old fence of the source", Own{Bucket: 3, Prev: 10, Owner: "s2", FenceSrc: 4, FenceDst: 6}, Void, "fence 4 of s1 was passed by 5"},
		{"fence of a source that owns nothing", Own{Bucket: 0, Owner: "s2", FenceSrc: 5, FenceDst: 6}, Void, "fence 5 of "},
		{"no such bucket", Own{Bucket: 4, Owner: "s2"}, Void, "bucket 4 is not of 0..3"},
	} {
		table := start()
		before := table.View()
		verdict, err := table.Own(20, tc.own)
		if verdict != tc.want || (err == nil) != (verdict == Applied) || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v; want %v, %q", tc.name, verdict, err, tc.want, tc.says)
			continue
		}
		if table.Seq() != 20 {
			t.Errorf("%s: the table is at %d", tc.name, table.Seq())
		}
		after := table.View()
		if verdict != Applied {
			if !slices.Equal(before.owners, after.owners) {
				t.Errorf("%s: owners changed to %v", tc.name, after.owners)
			}
			continue
		}
		if got := after.Owner(tc.own.Bucket); got != (Owner{tc.own.Owner, 20}) {
			t.Errorf("%s: owner %+v", tc.name, got)
		}
	}
}

func TestFenceVoidsWhatIsOnItsWay(t *testing.T) {
	table := NewTable(1)
	table.Fence(1, Fence{Storage: "s1"})
	table.Fence(2, Fence{Storage: "s1"})
	if v, _ := table.Own(3, Own{Owner: "s1", FenceDst: 1}); v != Void {
		t.Errorf("an entry under a fence that was passed: %v", v)
	}
	if v, _ := table.Own(4, Own{Owner: "s1", FenceDst: 2}); v != Applied {
		t.Errorf("an entry under the present fence: %v", v)
	}
	if got := table.View().Fence("s1"); got != 2 {
		t.Errorf("fence %d", got)
	}
}

func TestViewNeverChanges(t *testing.T) {
	table := NewTable(2)
	first := table.View()
	if table.Seen(1); table.View() != first {
		t.Error("an entry that changes nothing made a new view")
	}
	if _, err := table.Own(2, Own{Bucket: 1, Owner: "s1"}); err != nil {
		t.Fatal(err)
	}
	second := table.View()
	table.Fence(3, Fence{Storage: "s1"})
	if first.Owner(1) != (Owner{}) || second.Fence("s1") != 0 || table.View().Fence("s1") != 3 {
		t.Error("a view changed with its table")
	}
}

func TestViewLists(t *testing.T) {
	table := NewTable(5)
	for seq, o := range []Own{{Bucket: 4, Owner: "b"}, {Bucket: 1, Owner: "a"}, {Bucket: 2, Owner: "b"}} {
		if _, err := table.Own(uint64(seq+1), o); err != nil {
			t.Fatal(err)
		}
	}
	v := table.View()
	if v.Len() != 5 || !slices.Equal(v.Of("b"), []ID{2, 4}) || !slices.Equal(v.Of(""), []ID{0, 3}) || len(v.Of("c")) != 0 {
		t.Errorf("of b %v, of nobody %v", v.Of("b"), v.Of(""))
	}
	if got := v.Storages(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("storages %v", got)
	}
}

func TestApply(t *testing.T) {
	table := NewTable(2)
	for _, tc := range []struct {
		seq     uint64
		entry   Entry
		changed bool
		gap     bool
	}{
		{1, Records{}, false, false},
		{2, Cut{}, false, false},
		{3, Fence{Storage: "s1"}, true, false},
		{4, Own{Bucket: 1, Owner: "s1", FenceDst: 3}, true, false},
		{5, Own{Bucket: 1, Owner: "s2"}, false, false},
		{6, Own{Bucket: 1, Prev: 5, Owner: "s2"}, false, true},
		{7, Own{Bucket: 1, Prev: 7, Owner: "s2"}, false, false}, // no generation can be that late: forged
	} {
		changed, err := table.Apply(tc.seq, tc.entry)
		if changed != tc.changed || errors.Is(err, ErrGap) != tc.gap || (err != nil) != tc.gap || table.Seq() != tc.seq {
			t.Errorf("%d %+v: changed %v, %v, at %d", tc.seq, tc.entry, changed, err, table.Seq())
		}
	}
}

// drawEntry draws claims that are often right and often stale.
func drawEntry(t *rapid.T, seq uint64) Entry {
	storage := rapid.SampledFrom([]string{"s1", "s2", "s3"})
	if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		return Fence{Storage: storage.Draw(t, "storage")}
	}
	return Own{
		Bucket: ID(rapid.IntRange(0, 2).Draw(t, "bucket")),
		Prev:   uint64(rapid.IntRange(0, int(seq)).Draw(t, "prev")),
		Owner:  storage.Draw(t, "owner"), FenceSrc: uint64(rapid.IntRange(0, int(seq)).Draw(t, "source")) / 2,
		FenceDst: uint64(rapid.IntRange(0, int(seq)).Draw(t, "destination")) / 2,
	}
}

// The table against the rule written the other way round: an entry counts if and only if all it names is
// present. And a table that is saved and read anywhere goes on in the same way.
func TestTableAgainstTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable(3)
		owners, fences := map[ID]Owner{}, map[string]uint64{}
		for seq := uint64(1); seq <= 30; seq++ {
			e := drawEntry(t, seq)
			_, err := table.Apply(seq, e)
			switch e := e.(type) {
			case Fence:
				fences[e.Storage] = seq
			case Own:
				now := owners[e.Bucket]
				counts := e.Prev == now.Generation && (e.FenceDst == 0 || e.FenceDst == fences[e.Owner]) &&
					(e.FenceSrc == 0 || e.FenceSrc == fences[now.Storage])
				if counts {
					owners[e.Bucket] = Owner{e.Owner, seq}
				}
				if errors.Is(err, ErrGap) != (e.Prev > now.Generation && e.Prev < seq) {
					t.Fatalf("%+v on generation %d: %v", e, now.Generation, err)
				}
			}
			for b := range ID(3) {
				if got := table.View().Owner(b); got != owners[b] {
					t.Fatalf("at %d bucket %d belongs to %+v, want %+v", seq, b, got, owners[b])
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				table = reread(t, table)
			}
		}
		if !maps.Equal(table.View().fences, fences) {
			t.Fatalf("fences %v, want %v", table.View().fences, fences)
		}
	})
}

func reread(t *rapid.T, table *Table) *Table {
	saved, err := table.Save()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseTable(saved, len(table.owners))
	if err != nil {
		t.Fatal(err)
	}
	if again.Seq() != table.Seq() || !slices.Equal(again.owners, table.owners) || !maps.Equal(again.fences, table.fences) {
		t.Fatalf("%s read back as %+v", saved, again)
	}
	return again
}

func TestParseTableRefuses(t *testing.T) {
	for saved, want := range map[string]string{
		``:                                    "version 0; this program reads 1",
		`{`:                                   "cannot read the message",
		`{"seq":1}`:                           "version 0; this program reads 1",
		`{"version":2,"seq":1,"owners":[]}`:   "version 2; this program reads 1",
		`{"version":1,"seq":1,"owners":[{}]}`: "has 1 buckets, the cluster 2",
		`{"version":1,"seq":1,"owners":[{},{"storage":"s1"}]}`:                     "contradicts itself at bucket 1",
		`{"version":1,"seq":1,"owners":[{"generation":1},{}]}`:                     "contradicts itself at bucket 0",
		`{"version":1,"seq":1,"owners":[{"storage":"s1","generation":2},{}]}`:      "contradicts itself at bucket 0",
		`{"version":1,"seq":1,"owners":[{"storage":"s1","generation":-2},{}]}`:     "cannot read the message",
		`{"version":1,"seq":1,"owners":[{"storage":"s1","generation":1},{}]} more`: "cannot read the message",
	} {
		if _, err := ParseTable([]byte(saved), 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", saved, err, want)
		}
	}
	table, err := ParseTable([]byte(`{"version":1,"seq":3,"owners":[{"storage":"s1","generation":2},{}]}`), 2)
	if err != nil {
		t.Fatal(err)
	}
	table.Fence(4, Fence{Storage: "s1"}) // no fences were saved
	if table.View().Fence("s1") != 4 {
		t.Error("a fence was lost")
	}
}
