package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/pinion-mr/pinion/pmr/reduce"
	"github.com/pinion-mr/pinion/wasmhost"
)

// What guests emit goes into tables in blocks: that is most of their speed.
var _ wasmhost.BlockSink = (*reduce.Table)(nil)

// languages are those of the word count in examples/wasm, by folder.
var languages = []string{"c", "wat", "rust", "go", "assemblyscript", "wasi-c", "wasi-rust"}

// built has the guests of bench, by language; those whose toolchain is missing are nil.
func (b *bench) built(ctx context.Context) (map[string][]byte, error) {
	if b.guests != nil {
		return b.guests, nil
	}
	guests := map[string][]byte{}
	for _, language := range languages {
		out := filepath.Join(b.dir, language+".wasm")
		const missing = 3 // the status of build.sh
		file, err := build(ctx, missing, out, "examples/wasm/build.sh", filepath.Join("examples/wasm/wordcount", language), out)
		if err != nil {
			return nil, err
		}
		guests[language] = file
	}
	b.guests = guests
	return guests, nil
}

// build runs a command that makes a guest. The result is nil if it says that it lacks something.
func build(ctx context.Context, missing int, out, name string, args ...string) ([]byte, error) {
	text, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == missing {
		fmt.Printf("  skipped: %s\n", bytes.TrimSpace(text))
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w\n%s", name, args, err, text)
	}
	return os.ReadFile(out)
}

// framesGuest is testdata/frames.c as a guest; nil without clang.
func (b *bench) framesGuest(ctx context.Context) ([]byte, error) {
	out := filepath.Join(b.dir, "frames.wasm")
	return build(ctx, 3, out, "sdk/templates/c/build.sh", "bench/testdata/frames.c", out)
}

// openHost starts a host as an engine has it, without a folder.
func openHost(ctx context.Context) (host *wasmhost.Host, closeHost func(*error), err error) {
	host, err = wasmhost.New(ctx, wasmhost.Config{Fuel: 1 << 60, MaxOutputBytes: 1 << 50})
	return host, func(err *error) { *err = errors.Join(*err, host.Close(context.WithoutCancel(ctx))) }, err
}

func load(ctx context.Context, host *wasmhost.Host, file []byte) (*wasmhost.Module, error) {
	sum := sha256.Sum256(file)
	return host.Compile(ctx, hex.EncodeToString(sum[:]), file)
}

// mapCorpus maps a corpus with a function of a guest and sums what it emits.
func mapCorpus(ctx context.Context, m *wasmhost.Module, function string, c *corpus) (cost, *reduce.Table, error) {
	in, err := m.Instance(ctx, wasmhost.Job{Name: "bench", Function: function, Numeric: true})
	if err != nil {
		return cost{}, nil, err
	}
	defer in.Close()
	sum, err := reduce.Parse("sum")
	if err != nil {
		return cost{}, nil, err
	}
	runtime.GC()
	table := reduce.NewTable(sum, 0)
	took, err := measure(ownCPU, func() error {
		_, err := in.Map(ctx, 0, &cursor{of: c}, table)
		return err
	})
	return took, table, err
}

// wordcount compares word counts of one processor: guests, through host and aggregation, and what one would use
// instead, all from memory but mawk. Rounds go in turn, and of each the cheapest counts.
func (b *bench) wordcount(ctx context.Context) (err error) {
	fmt.Println("words, one processor, records in memory, through host and aggregation:")
	c, err := b.corpus()
	if err != nil {
		return err
	}
	guests, err := b.built(ctx)
	if err != nil {
		return err
	}
	host, closeHost, err := openHost(ctx)
	if err != nil {
		return err
	}
	defer closeHost(&err)
	best := map[string]cost{}
	for range 2 {
		if err := b.countRound(ctx, host, c, guests, best); err != nil {
			return err
		}
	}
	plain := best["Go"]
	row("idiomatic Go", plain, c.bytes, "", 0)
	for _, language := range languages {
		if took, ok := best[language]; ok {
			row(language+" guest", took, c.bytes, "idiomatic Go", times(took, plain))
		}
	}
	awk, ok := best["mawk"]
	if ok {
		row("mawk, from its file", awk, c.bytes, "idiomatic Go", times(awk, plain))
	}
	for _, goal := range []struct {
		language string
		want     float64
	}{{"c", 1.6}, {"go", 0.6}} {
		if took, ok := best[goal.language]; ok {
			atLeast(goal.language+" guest / idiomatic Go, speed", times(took, plain), goal.want)
		}
	}
	if took, built := best["c"]; built && ok {
		atLeast("c guest / mawk, speed", times(took, awk), 7)
	}
	fmt.Println()
	return nil
}

// countRound counts the words once in each way.
func (b *bench) countRound(ctx context.Context, host *wasmhost.Host, c *corpus, guests map[string][]byte, best map[string]cost) error {
	runtime.GC()
	words := uint64(0)
	plain, err := measure(ownCPU, func() error { _, words = countWords(c); return nil })
	if err != nil {
		return err
	}
	best["Go"] = better(best["Go"], plain)
	for _, language := range languages {
		if guests[language] == nil {
			continue
		}
		m, err := load(ctx, host, guests[language])
		if err != nil {
			return err
		}
		took, table, err := mapCorpus(ctx, m, "map", c)
		m.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", language, err)
		}
		// Go's bytes.Fields splits at the white space of other alphabets too, of which there is a little.
		if total := sumOf(table); total < words*999/1000 || total > words {
			return fmt.Errorf("%s: counted %d words, Go %d", language, total, words)
		}
		best[language] = better(best[language], took)
	}
	if !installed("mawk") {
		return nil
	}
	awk, err := b.mawk(ctx)
	best["mawk"] = better(best["mawk"], awk)
	return err
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// sumOf is the sum of all rows.
func sumOf(t *reduce.Table) (total uint64) {
	rows, err := t.Rows(reduce.ByKey, 0)
	if err != nil {
		return 0
	}
	for i := range rows.Len() {
		total += uint64(rows.Row(i).Value.Int)
	}
	return total
}
