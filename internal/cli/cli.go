package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pinion-mr/pinion/api"
)

// Exit codes of both programs.
const (
	ExitDone   = 0
	ExitFailed = 1 // named on stderr
	ExitUsage  = 2
)

const exitHelp = `
Exit status:
  0  all that was asked was done
  1  something failed; stderr names it
  2  wrong usage
`

// UsageError is the caller's fault.
type UsageError struct{ message string }

// Error is the message.
func (e *UsageError) Error() string { return e.message }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Execute runs a program and returns its exit code. What fails is one line on stderr.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = Version()
	root.SetUsageTemplate(root.UsageTemplate() + exitHelp)
	root.SetFlagErrorFunc(flagError)
	root.InitDefaultCompletionCmd("completion")
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	var usage *UsageError
	if errors.As(err, &usage) {
		_, _ = fmt.Fprintf(stderr, "%s: %v (see %s --help)\n", root.Name(), err, cmd.CommandPath())
		return ExitUsage
	}
	_, _ = fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	return ExitFailed
}

// Version is the version of the module that was built, "(devel)" for a working copy.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// Group makes parent a command that only has others below it.
func Group(parent *cobra.Command, children ...*cobra.Command) {
	parent.AddCommand(children...)
	var names []string
	for _, c := range children {
		names = append(names, c.Name())
	}
	parent.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return Usagef("there is no command %q%s", args[0], didYouMean(args[0], names))
	}
	parent.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// WantArgs is an argument check: at least low and at most high, -1 for any number. names says what they are.
func WantArgs(low, high int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return Usagef("%s needs %s", cmd.Name(), names)
		case high >= 0 && len(args) > high && high == 0:
			return Usagef("%s takes no argument, but was given %q", cmd.Name(), args[0])
		case high >= 0 && len(args) > high:
			return Usagef("%s takes %s; %q is too much", cmd.Name(), names, args[high])
		}
		return nil
	}
}

func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := api.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return Usagef("there is no flag --%s; did you mean --%s?", unknown.GetSpecifiedName(), near)
		}
	}
	return Usagef("%v", err)
}

// OneOf checks the value of a flag that takes one of some words.
func OneOf(flag, value string, words ...string) error {
	for _, w := range words {
		if w == value {
			return nil
		}
	}
	return Usagef("--%s %q is not one of %s%s", flag, value, strings.Join(words, ", "), didYouMean(value, words))
}

func didYouMean(word string, candidates []string) string {
	if near := api.Nearest(word, candidates); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
