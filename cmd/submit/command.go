package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pinion-mr/pinion/api"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

const exitCodes = `
Exit status:
  0  all that was asked was done
  1  something failed or was left out; stderr names it
  2  wrong usage
`

// session is one run of the program.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	options        connection
}

// usageError is the caller's fault.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// submit is the whole program; it returns the exit code.
func submit(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := &session{stdin: stdin, stdout: stdout, stderr: stderr}
	root := s.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	var usage *usageError
	if errors.As(err, &usage) {
		s.note("submit: %v (see %s --help)", err, cmd.CommandPath())
		return exitUsage
	}
	s.note("submit: %v", err)
	return exitFailed
}

// note writes a line to stderr.
func (s *session) note(format string, args ...any) {
	_, _ = fmt.Fprintf(s.stderr, format+"\n", args...)
}

func (s *session) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "submit",
		Short: "Import records into a Pinion cluster and run jobs over them",
		Long: "submit imports records into a Pinion cluster, runs WebAssembly functions over all of them where\n" +
			"they are stored, and prints the reduced rows. `engine dev` starts a cluster to try it on.",
		Example: "  submit import access.log\n" +
			"  submit run wordcount --reduce sum --sort -value --limit 20",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	s.options.register(root.PersistentFlags())
	root.SetUsageTemplate(root.UsageTemplate() + exitCodes)
	root.SetFlagErrorFunc(flagError)
	group(root, s.importCommand(), s.exportCommand(), s.runCommand(), s.moduleCommand(),
		s.putCommand(), s.getCommand(), s.deleteCommand(), s.spacesCommand())
	root.InitDefaultCompletionCmd("completion")
	return root
}

// group makes parent a command that only has others below it.
func group(parent *cobra.Command, children ...*cobra.Command) {
	parent.AddCommand(children...)
	var names []string
	for _, c := range children {
		names = append(names, c.Name())
	}
	parent.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usagef("%s has no command %q%s", cmd.CommandPath(), args[0], didYouMean(args[0], names))
	}
	parent.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// wantArgs is an argument check: at least low and at most high, -1 for any number. names says what they are.
func wantArgs(low, high int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return usagef("%s needs %s", cmd.CommandPath(), names)
		case high >= 0 && len(args) > high && high == 0:
			return usagef("%s takes no argument, but was given %q", cmd.CommandPath(), args[0])
		case high >= 0 && len(args) > high:
			return usagef("%s takes %s; %q is too much", cmd.CommandPath(), names, args[high])
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
			return usagef("%s has no flag --%s; did you mean --%s?", cmd.CommandPath(), unknown.GetSpecifiedName(), near)
		}
	}
	return usagef("%s: %v", cmd.CommandPath(), err)
}

// oneOf checks the value of a flag that takes one of some words.
func oneOf(flag, value string, words ...string) error {
	for _, w := range words {
		if w == value {
			return nil
		}
	}
	return usagef("--%s %q is not one of %s%s", flag, value, strings.Join(words, ", "), didYouMean(value, words))
}

func didYouMean(word string, candidates []string) string {
	if near := api.Nearest(word, candidates); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
