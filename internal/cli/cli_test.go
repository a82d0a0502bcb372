package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// program is a root with one command that fails as it is told.
func program(c *Connection, fail error) *cobra.Command {
	root := &cobra.Command{Use: "prog", PersistentPreRunE: func(*cobra.Command, []string) error { return c.Settle() }}
	c.Register(root.PersistentFlags())
	Group(root, &cobra.Command{
		Use: "show", Args: WantArgs(0, 1, "a name"),
		RunE: func(*cobra.Command, []string) error { return fail },
	})
	return root
}

func TestExecute(t *testing.T) {
	for _, tc := range []struct {
		args string
		fail error
		code int
		says string
	}{
		{"show", nil, ExitDone, ""},
		{"show x", nil, ExitDone, ""},
		{"show", errors.New("the disk is full"), ExitFailed, "prog: the disk is full\n"},
		{"show x y", nil, ExitUsage, `show takes a name; "y" is too much`},
		{"shwo", nil, ExitUsage, `there is no command "shwo"; did you mean show?`},
		{"show --sever x", nil, ExitUsage, "did you mean --server?"},
		{"show", Usagef("--n is %d", 3), ExitUsage, "--n is 3 (see prog show --help)"},
		{"show --config /nowhere", nil, ExitUsage, "--config"},
	} {
		var out, errs bytes.Buffer
		code := Execute(t.Context(), program(&Connection{}, tc.fail), strings.Fields(tc.args), nil, &out, &errs)
		if code != tc.code || !strings.Contains(errs.String(), tc.says) || tc.says == "" && errs.Len() > 0 {
			t.Errorf("%s: code %d, %q; want %d, %q", tc.args, code, errs.String(), tc.code, tc.says)
		}
	}
}

func TestFlagsBeforeEnvironmentBeforeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("server: from-file\ncluster: from-file\ntimeout: 7s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PINION_CLUSTER", "from-env")
	t.Setenv("PINION_SERVER", "from-env")
	var c Connection
	var errs bytes.Buffer
	args := []string{"show", "--config", file, "--server", "from-flag"}
	if code := Execute(t.Context(), program(&c, nil), args, nil, &errs, &errs); code != ExitDone {
		t.Fatal(errs.String())
	}
	for flag, want := range map[string]string{"server": "from-flag", "cluster": "from-env", "timeout": "7s", "creds": ""} {
		if got := c.Value(flag); got != want {
			t.Errorf("%s is %q, want %q", flag, got, want)
		}
	}
	if d, err := c.Timeout(time.Minute); err != nil || d != 7*time.Second {
		t.Errorf("timeout %v, %v", d, err)
	}
}

func TestOneOf(t *testing.T) {
	if err := OneOf("output", "json", "table", "json"); err != nil {
		t.Error(err)
	}
	err := OneOf("output", "jsn", "table", "json")
	if err == nil || !strings.Contains(err.Error(), "did you mean json?") {
		t.Error(err)
	}
}
