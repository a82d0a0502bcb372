package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants from the root of the module, prints the table, and fails if one survives.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "try only mutants whose name has this in it")
	show := flags.Bool("show", false, "print what the tests said")
	jobs := flags.Int("jobs", runtime.NumCPU(), "how many to try at a time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all := slices.DeleteFunc(mutants(), func(m mutant) bool { return !strings.Contains(m.name, *only) })
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if err := baseline(ctx, root, all); err != nil {
		return err
	}
	outcomes := try(ctx, root, all, max(1, *jobs))
	return report(out, all, outcomes, *show)
}

func moduleRoot(ctx context.Context) (string, error) {
	path, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(path))), nil
}

// baseline checks that all that must fail passes as long as nothing is switched off.
func baseline(ctx context.Context, root string, all []mutant) error {
	tests := map[string][]string{}
	for _, m := range all {
		for test := range strings.SplitSeq(m.run, "|") {
			if !slices.Contains(tests[m.pkg], test) {
				tests[m.pkg] = append(tests[m.pkg], test)
			}
		}
	}
	for pkg, names := range tests {
		if o := goTest(ctx, root, pkg, strings.Join(names, "|"), ""); o.verdict != survived {
			return fmt.Errorf("without any mutant the tests of %s do not pass:\n%s", pkg, o.output)
		}
	}
	return nil
}

// verdict is what became of a mutant.
type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "SURVIVED"
	broken   verdict = "BROKEN" // it could not be tried
)

// outcome is what came of one mutant.
type outcome struct {
	verdict verdict
	by      string // the first test that failed
	took    time.Duration
	output  string
}

func try(ctx context.Context, root string, all []mutant, jobs int) []outcome {
	outcomes := make([]outcome, len(all))
	places := make(chan struct{}, jobs)
	var work sync.WaitGroup
	for i, m := range all {
		work.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			outcomes[i] = tryOne(ctx, root, m)
		})
	}
	work.Wait()
	return outcomes
}

func tryOne(ctx context.Context, root string, m mutant) outcome {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return outcome{verdict: broken, output: err.Error()}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := mutate(root, dir, m.edits)
	if err != nil {
		return outcome{verdict: broken, output: err.Error()}
	}
	return goTest(ctx, root, m.pkg, m.run, overlay)
}

// mutate writes the changed files into dir, and the overlay that puts them in the place of the others.
func mutate(root, dir string, edits []edit) (overlay string, err error) {
	texts := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		if _, ok := texts[path]; !ok {
			body, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			texts[path] = string(body)
		}
		if n := strings.Count(texts[path], e.from); n != 1 {
			return "", fmt.Errorf("%s has this text %d times, not once; bring the table of mutants up to date:\n%s", e.file, n, e.from)
		}
		texts[path] = strings.Replace(texts[path], e.from, e.to, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	body, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, body, 0o600)
}

// goTest runs tests. A mutant that does not compile, or that runs no test, was not tried.
func goTest(ctx context.Context, root, pkg, tests, overlay string) outcome {
	args := []string{"test", "-count=1", "-timeout=100s", "-failfast", "-vet=off", "-v", "-run", pattern(tests)}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = root
	body, err := cmd.CombinedOutput()
	o := outcome{verdict: survived, took: time.Since(begin), output: string(body)}
	var failed *exec.ExitError
	switch {
	case err == nil && !bytes.Contains(body, []byte("--- PASS")):
		o.verdict = broken
	case err == nil:
	case !errors.As(err, &failed), bytes.Contains(body, []byte("[build failed]")), bytes.Contains(body, []byte("[setup failed]")):
		o.verdict, o.output = broken, err.Error()+"\n"+o.output
	default:
		o.verdict, o.by = killed, firstFailure(o.output)
	}
	return o
}

// pattern has the names of tests mean no others that begin the same.
func pattern(tests string) string {
	var whole []string
	for test := range strings.SplitSeq(tests, "|") {
		name, sub, nested := strings.Cut(test, "/")
		if nested {
			sub = "/^" + sub
		}
		whole = append(whole, "^"+strings.TrimSuffix(name, "$")+"$"+sub)
	}
	return strings.Join(whole, "|")
}

// firstFailure is the innermost test that failed first.
func firstFailure(output string) string {
	name := "panic"
	for line := range strings.Lines(output) {
		if rest, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "--- FAIL: "); ok {
			rest, _, _ = strings.Cut(rest, " ")
			if name == "panic" || strings.HasPrefix(rest, name) {
				name = rest
			}
		}
	}
	return name
}

func report(out io.Writer, all []mutant, outcomes []outcome, show bool) error {
	alive := 0
	for i, m := range all {
		o := outcomes[i]
		if o.verdict != killed {
			alive++
		}
		fmt.Fprintf(out, "%-9s %-23s %-62s %5.1f s  %s\n", o.verdict, m.name, m.what, o.took.Seconds(), o.by)
		if o.verdict == broken || show {
			fmt.Fprintln(out, o.output)
		}
	}
	if alive > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", alive, len(all))
	}
	_, err := fmt.Fprintf(out, "all %d mutants were killed\n", len(all))
	return err
}
