package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/internal/cli"
)

// session is one run of the program.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	options        cli.Connection
}

// submit is the whole program; it returns the exit code.
func submit(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := &session{stdin: stdin, stdout: stdout, stderr: stderr}
	return cli.Execute(ctx, s.rootCommand(), args, stdin, stdout, stderr)
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
	}
	s.options.Register(root.PersistentFlags())
	cli.Group(root, s.importCommand(), s.exportCommand(), s.runCommand(), s.jobsCommand(), s.jobCommand(), s.moduleCommand(),
		s.putCommand(), s.getCommand(), s.deleteCommand(), s.spacesCommand())
	root.AddCommand(cli.CompileCommand())
	return root
}
