package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/pmr/reduce"
)

// example is the data of one example and what to do with it, from its file jobs.txt. That has lines as one gives
// them to submit, without the file of the module:
//
//	import events.ndjson --key session
//	run map --combine combine --reduce module -p gap=1800
//
// Without an import the input is input.txt. The rows of the function map over input.txt are in expected.tsv, those of
// another function F in expected.F.tsv; those of a file events.ndjson in events.expected.tsv or events.expected.F.tsv.
type example struct {
	folder string
	input  input // of the jobs that follow
	jobs   []job
}

// input is a file of records, one a line.
type input struct {
	file string
	key  string // field of a line, a JSON object, that is the record's key; else it is the number of the line
}

// job is one run of a module over an input.
type job struct {
	input                     input
	function, combine, reduce string
	params                    map[string][]byte
	expected                  string // file
}

// exampleOf reads what a folder's jobs.txt says, or that of its language if it has one.
func exampleOf(folder, language string) (*example, error) {
	file := filepath.Join(folder, language, "jobs.txt")
	if _, err := os.Stat(file); err != nil {
		file = filepath.Join(folder, "jobs.txt")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	e := &example{folder: folder, input: input{file: "input.txt"}}
	for i, line := range strings.Split(string(text), "\n") {
		if err := e.line(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	if len(e.jobs) == 0 {
		return nil, fmt.Errorf("%s has no job", file)
	}
	return e, nil
}

func (e *example) line(words []string) error {
	switch {
	case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		return nil
	case len(words) == 1:
		return fmt.Errorf("%s needs an argument", words[0])
	case words[0] == "import":
		e.input = input{file: words[1]}
		return flags(words[2:], map[string]func(string) error{"--key": set(&e.input.key)})
	case words[0] == "run":
		j := job{input: e.input, function: words[1], reduce: "none", params: map[string][]byte{}, expected: "expected"}
		if base := strings.TrimSuffix(e.input.file, filepath.Ext(e.input.file)); base != "input" {
			j.expected = base + ".expected"
		}
		if j.function != "map" {
			j.expected += "." + j.function
		}
		j.expected += ".tsv"
		err := flags(words[2:], map[string]func(string) error{
			"--reduce": set(&j.reduce), "--combine": set(&j.combine), "-p": j.param,
		})
		e.jobs = append(e.jobs, j)
		return err
	}
	return fmt.Errorf("%s is neither import nor run", words[0])
}

func (j *job) param(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("-p %s has no =", text)
	}
	j.params[name] = []byte(value)
	return nil
}

func flags(words []string, known map[string]func(string) error) error {
	for len(words) > 0 {
		take, ok := known[words[0]]
		if !ok || len(words) < 2 {
			return fmt.Errorf("flag %s is unknown, or has no value", words[0])
		}
		if err := take(words[1]); err != nil {
			return err
		}
		words = words[2:]
	}
	return nil
}

func set(field *string) func(string) error {
	return func(text string) error {
		*field = text
		return nil
	}
}

// record is a line of the input with its key.
type record struct{ key, value []byte }

func (in input) records(t *testing.T, folder string) []record {
	t.Helper()
	var out []record
	for i, line := range bytes.Split(bytes.TrimSuffix(read(t, folder, in.file), []byte("\n")), []byte("\n")) {
		r := record{key: fmt.Appendf(nil, "%06d", i), value: line}
		if in.key != "" {
			var fields map[string]any
			if err := json.Unmarshal(line, &fields); err != nil {
				t.Fatalf("%s:%d: %v", in.file, i+1, err)
			}
			text, ok := fields[in.key].(string)
			if !ok {
				t.Fatalf("%s:%d: field %s is no text", in.file, i+1, in.key)
			}
			r.key = []byte(text)
		}
		out = append(out, r)
	}
	return out
}

func TestJobsFile(t *testing.T) {
	e := &example{input: input{file: "input.txt"}}
	for _, line := range []string{"# a comment", "", "run map --reduce sum", "import x.ndjson --key id", "run other --combine c --reduce module:r -p a=b -p c=d=e"} {
		if err := e.line(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	if len(e.jobs) != 2 || e.jobs[0].input.file != "input.txt" || e.jobs[0].expected != "expected.tsv" || e.jobs[0].reduce != "sum" {
		t.Fatalf("read %+v", e)
	}
	j := e.jobs[1]
	if j.input != (input{"x.ndjson", "id"}) || j.function != "other" || j.expected != "x.expected.other.tsv" || j.combine != "c" || j.reduce != "module:r" ||
		string(j.params["a"]) != "b" || string(j.params["c"]) != "d=e" {
		t.Errorf("read %+v", j)
	}
	for _, line := range []string{"map", "run", "walk map", "run map --sort key", "run map -p a", "import x --key"} {
		if err := e.line(strings.Fields(line)); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
	if _, err := reduce.Parse(j.reduce); err != nil {
		t.Error(err)
	}
}
