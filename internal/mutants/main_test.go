package main

import (
	"strings"
	"testing"
)

// The table is in step with the code: each text is there once, and no two mutants have one name.
func TestTheTableFitsTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants() {
		if names[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		names[m.name] = true
		if _, err := mutate("../..", t.TempDir(), m.edits); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

func TestATextThatIsGoneIsAnError(t *testing.T) {
	_, err := mutate("../..", t.TempDir(), one(storageGo, "no such text", ""))
	if err == nil || !strings.Contains(err.Error(), storageGo) {
		t.Errorf("the error is %v; it must name the file", err)
	}
	if _, err := mutate("../..", t.TempDir(), one(storageGo, "return", "")); err == nil {
		t.Error("a text that is there many times was taken")
	}
}

func TestPattern(t *testing.T) {
	for tests, want := range map[string]string{
		"TestA":             "^TestA$",
		"TestA/b$|TestC":    "^TestA$/^b$|^TestC$",
		"TestA/b_|TestC/d$": "^TestA$/^b_|^TestC$/^d$",
	} {
		if got := pattern(tests); got != want {
			t.Errorf("pattern(%q) is %q, want %q", tests, got, want)
		}
	}
}

func TestTheInnermostTestIsNamed(t *testing.T) {
	const output = "=== RUN   TestA\n--- FAIL: TestA (0.10s)\n    --- FAIL: TestA/b (0.05s)\n--- FAIL: TestC (0.00s)\nFAIL\n"
	if got := firstFailure(output); got != "TestA/b" {
		t.Errorf("named %s", got)
	}
}

func TestASurvivorIsAnError(t *testing.T) {
	all := []mutant{{name: "one", what: "a"}, {name: "two", what: "b"}}
	var out strings.Builder
	err := report(&out, all, []outcome{{verdict: killed, by: "TestA"}, {verdict: survived}}, false)
	if err == nil || !strings.Contains(out.String(), "SURVIVED  two") {
		t.Errorf("error %v, table\n%s", err, out.String())
	}
	if err := report(&out, all, []outcome{{verdict: killed}, {verdict: killed}}, false); err != nil {
		t.Error(err)
	}
}
