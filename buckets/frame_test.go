package buckets

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFrameForm(t *testing.T) {
	got := AppendFrame([]byte{0xee}, FlagFirst|FlagInt, []byte("key"), []byte{1, 2})
	want := "ee" + "05000000" + "03000000" + "02000000" + "6b6579" + "0102"
	if hex.EncodeToString(got) != want {
		t.Errorf("frame %x, want %s", got, want)
	}
}

func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Frame {
			return Frame{
				Flags: rapid.Uint32().Draw(t, "flags"),
				Key:   rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "key"),
				Value: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "value"),
			}
		}), 0, 9).Draw(t, "frames")
		var block []byte
		for _, f := range frames {
			block = AppendFrame(block, f.Flags, f.Key, f.Value)
		}
		for i, want := range frames {
			got, rest, err := CutFrame(block)
			if err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
			if got.Flags != want.Flags || !bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value) {
				t.Fatalf("frame %d is %+v, want %+v", i, got, want)
			}
			block = rest
		}
		if len(block) > 0 {
			t.Fatalf("%d bytes are left", len(block))
		}
	})
}

func TestCutFrameRefuses(t *testing.T) {
	for _, tc := range []struct{ block, want string }{
		{"", "needs 12 bytes, 0 are left"},
		{strings.Repeat("\x00", 11), "needs 12 bytes, 11 are left"},
		{"\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00k", "key 1 and value 1 bytes, but 1 are left"},
		{"\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00k", "key 4294967295 and value 0"},
		{"\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xffk", "key 0 and value 4294967295"},
		// The sum of both lengths is 1 in 32 bits.
		{"\x00\x00\x00\x00\xff\xff\xff\xff\x02\x00\x00\x00k", "key 4294967295 and value 2"},
	} {
		if _, _, err := CutFrame([]byte(tc.block)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.block, err, tc.want)
		}
	}
}

// Appending to a part of a frame must not write into its neighbour.
func TestCutFrameBoundsItsParts(t *testing.T) {
	block := AppendFrame(AppendFrame(nil, 0, []byte("k"), []byte("v")), 0, []byte("l"), []byte("w"))
	f, rest, err := CutFrame(block)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(f.Key, 'X')
	_ = append(f.Value, "XXXXXXXXXXXXXX"...)
	g, _, err := CutFrame(rest)
	if err != nil || string(f.Value) != "v" || string(g.Key) != "l" || string(g.Value) != "w" {
		t.Errorf("%q, %q, %q: %v", f.Value, g.Key, g.Value, err)
	}
}

// A frame that is cut off is what AppendFrame makes of its parts, and nothing is lost.
func FuzzCutFrame(f *testing.F) {
	f.Add(AppendFrame(nil, FlagDelete, []byte("key"), nil))
	f.Add(AppendFrame(AppendFrame(nil, 0, nil, []byte("v")), FlagLast, []byte("k"), []byte("w")))
	f.Add([]byte("\x00\x00\x00\x00\xff\xff\xff\xff\x01\x00\x00\x00k"))
	f.Fuzz(func(t *testing.T, block []byte) {
		frame, rest, err := CutFrame(block)
		if err != nil {
			return
		}
		again := append(AppendFrame(nil, frame.Flags, frame.Key, frame.Value), rest...)
		if !bytes.Equal(again, block) {
			t.Fatalf("%x, then %x", block, again)
		}
	})
}

func TestWrites(t *testing.T) {
	var w Writes
	for range 2 {
		key, value := []byte("key"), []byte("value")
		for i := range 100 { // the arena moves meanwhile
			key[0], value[0] = byte(i), byte(i)
			w.Put(ID(i), "default", key, value)
			w.Delete(ID(i), "other", key)
		}
		key[0], value[0] = 'X', 'X'
		if len(w.Records) != 200 || w.Len() != 100*(3+5+3) {
			t.Fatalf("%d records of %d bytes", len(w.Records), w.Len())
		}
		for i := range 100 {
			put, del := w.Records[2*i], w.Records[2*i+1]
			c := string(rune(i))
			if put.Bucket != ID(i) || put.Space != "default" || string(put.Key) != c+"ey" || string(put.Value) != c+"alue" || put.Delete {
				t.Fatalf("record %d is %+v", 2*i, put)
			}
			if del.Bucket != ID(i) || del.Space != "other" || string(del.Key) != c+"ey" || len(del.Value) > 0 || !del.Delete {
				t.Fatalf("record %d is %+v", 2*i+1, del)
			}
		}
		w.Position.Seq, w.Table = 7, []byte("t")
		w.Reset()
		if len(w.Records) != 0 || w.Len() != 0 || w.Position.Seq != 0 || w.Table != nil {
			t.Fatalf("after Reset: %+v", w)
		}
	}
}
