package main

import (
	"strings"
	"testing"
)

// The whole program names what is wrong where it cannot begin, and says that it failed.
func TestOutsideTheRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	var out, errs strings.Builder
	if code := run(t.Context(), &out, &errs); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(errs.String(), "the demo must be started in the root of the repository") {
		t.Errorf("stderr: %s", errs.String())
	}
}

func TestProgramForgetsTheCallersCluster(t *testing.T) {
	t.Setenv("PINION_CLUSTER", "production")
	d := &demo{bin: "bin"}
	for _, v := range d.program("engine").Env {
		if strings.HasPrefix(v, "PINION_") {
			t.Error(v)
		}
	}
}
