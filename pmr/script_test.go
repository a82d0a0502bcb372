package pmr_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts under testdata print into them")

// command is one line of a script: a name, plain arguments and options key=value.
type command struct {
	t    *testing.T
	at   string // file:line
	name string
	args []string
	opts map[string]string
}

// quiet is what a command returns that sets the scene.
const quiet = "quiet"

// runScripts runs every script in testdata/dir, each on an interpreter of its own. A script is comments
// and blocks of a command, a line of four dashes, and the lines that the command must print; a blank line
// ends them. A command that does nothing prints "nothing"; one that only sets the scene has no such lines.
func runScripts(t *testing.T, dir string, interpreter func() func(command) string) {
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts in testdata/%s (%v)", dir, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			runScript(t, path, interpreter())
		})
	}
}

func runScript(t *testing.T, path string, do func(command) string) {
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	lines := strings.Split(strings.TrimRight(string(body), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			continue
		}
		cmd := parseCommand(t, path, i+1, lines[i])
		want := quiet
		if i+1 < len(lines) && lines[i+1] == "----" {
			i++
			from := i + 1
			for i+1 < len(lines) && lines[i+1] != "" {
				i++
			}
			want = strings.Join(lines[from:i+1], "\n")
		}
		got := strings.TrimSpace(do(cmd))
		if got == "" {
			got = "nothing"
		}
		if got != want && !*rewrite {
			t.Fatalf("%s: %s printed\n%s\ninstead of\n%s", cmd.at, cmd.name, got, want)
		}
		if got != quiet {
			out = append(out, "----", got)
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(strings.Join(out, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func parseCommand(t *testing.T, path string, line int, text string) command {
	fields := strings.Fields(text)
	cmd := command{t: t, at: position(path, line), name: fields[0], opts: map[string]string{}}
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			cmd.opts[k] = v
		} else {
			cmd.args = append(cmd.args, f)
		}
	}
	return cmd
}

// arg is the i-th plain argument.
func (c command) arg(i int) string {
	if i >= len(c.args) {
		c.t.Fatalf("%s: %s needs %d arguments", c.at, c.name, i+1)
	}
	return c.args[i]
}

// rest is the text from the i-th plain argument on; empty if there is none.
func (c command) rest(i int) string {
	if i >= len(c.args) {
		return ""
	}
	return strings.Join(c.args[i:], " ")
}

// number is the i-th plain argument as a number.
func (c command) number(i int) int { return parseNumber(c.t, c.arg(i)) }

// option is a number given as key=value, or its default.
func (c command) option(key string, def int) int {
	if v, ok := c.opts[key]; ok {
		return parseNumber(c.t, v)
	}
	return def
}

// text is key=value, or its default.
func (c command) text(key, def string) string {
	if v, ok := c.opts[key]; ok {
		return v
	}
	return def
}

// duration is a duration given as key=value, or its default.
func (c command) duration(key string, def time.Duration) time.Duration {
	if v, ok := c.opts[key]; ok {
		return parseDuration(c.t, v)
	}
	return def
}

func (c command) unknown() string {
	c.t.Fatalf("%s: there is no command %q", c.at, c.name)
	return ""
}
