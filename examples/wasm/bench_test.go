package examples

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/pmr/reduce"
	"github.com/pinion-mr/pinion/wasmhost"
)

// text is a few megabytes of the Go toolchain's own source.
func text(b *testing.B) []byte {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "src", "*", "*.go"))
	if err != nil || len(files) == 0 {
		b.Fatalf("no sources: %v", err)
	}
	var all []byte
	for _, name := range files {
		if t, err := os.ReadFile(name); err != nil {
			b.Fatal(err)
		} else if all = append(all, t...); len(all) > 4<<20 {
			break
		}
	}
	return bytes.TrimSuffix(all, []byte("\n"))
}

// batches is a source that has its batches ready, each a bucket's share of 64 KiB.
type batches struct {
	frames  [][]byte
	records []int
	next    int
}

func (s *batches) Fill(dst []byte, _ int) ([]byte, int, error) {
	if s.next == len(s.frames) {
		return dst, 0, nil
	}
	i := s.next
	s.next++
	return append(dst, s.frames[i]...), s.records[i], nil
}

func batchesOf(b *testing.B, values [][]byte) *batches {
	b.Helper()
	s := &batches{}
	for in := linesOf(values...); ; {
		frames, n, err := in.Fill(nil, 64<<10)
		if err != nil {
			b.Fatal(err)
		}
		if n == 0 {
			return s
		}
		s.frames, s.records = append(s.frames, frames), append(s.records, n)
	}
}

// BenchmarkWordcount counts the words of source code on one core: in plain Go, and with each guest through the host
// into a table.
func BenchmarkWordcount(b *testing.B) {
	all := text(b)
	values := bytes.Split(all, []byte("\n"))
	source := batchesOf(b, values)
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(int64(len(all)))
		for b.Loop() {
			counts := map[string]*uint64{}
			for _, line := range values {
				for _, word := range bytes.Fields(line) {
					n := counts[string(word)]
					if n == nil {
						n = new(uint64)
						counts[string(word)] = n
					}
					*n++
				}
			}
		}
	})
	sources, err := filepath.Glob("wordcount/*/*.*")
	if err != nil || len(sources) == 0 {
		b.Fatalf("no guests: %v", err)
	}
	for _, file := range sources {
		folder := filepath.Dir(file)
		if filepath.Ext(file) == ".txt" || strings.Contains(folder, "wasi") {
			continue // a WASI command begins anew for each bucket: make bench tells what that costs
		}
		b.Run(filepath.Base(folder), func(b *testing.B) { benchmarkGuest(b, folder, source, len(all)) })
	}
}

func benchmarkGuest(b *testing.B, folder string, source *batches, size int) {
	out := filepath.Join(b.TempDir(), "guest.wasm")
	said, err := exec.CommandContext(b.Context(), "./build.sh", folder, out).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == missingTool {
		b.Skip(string(said))
	} else if err != nil {
		b.Fatalf("%v\n%s", err, said)
	}
	file, err := os.ReadFile(out)
	if err != nil {
		b.Fatal(err)
	}
	h, err := wasmhost.New(b.Context(), wasmhost.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = h.Close(b.Context()) }()
	m, err := h.Compile(b.Context(), plugins.Digest(file), file)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	in, err := m.Instance(b.Context(), wasmhost.Job{Name: folder})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	sum, err := reduce.Parse("sum")
	if err != nil {
		b.Fatal(err)
	}
	var pairs uint64
	b.SetBytes(int64(size))
	for b.Loop() {
		table := reduce.NewTable(sum, tableBytes)
		table.StartBucket(0)
		source.next = 0
		figures, err := in.Map(b.Context(), 0, source, table)
		if err != nil {
			b.Fatal(err)
		}
		pairs = figures.Pairs
	}
	b.ReportMetric(float64(pairs), "pairs/op")
	b.ReportMetric(float64(in.MemoryBytes())/1e6, "MB-of-guest")
}
