package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/plugins"
)

// uploadPatience bounds module add.
const uploadPatience = 2 * time.Minute

func (s *session) moduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "module",
		Short: "The catalogue of modules",
		Long: "The catalogue of modules. Their bytes are stored once, by digest; a name has versions, which do not\n" +
			"change. wordcount and grep are built in.",
		Example: "  submit module check mine.wasm\n" +
			"  submit module add mine.wasm --reduce sum\n" +
			"  submit module list",
	}
	cli.Group(cmd, s.moduleCheckCommand(), s.moduleAddCommand(), s.moduleListCommand(), s.moduleShowCommand(), s.moduleRemoveCommand())
	return cmd
}

func (s *session) moduleCheckCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "check FILE.wasm",
		Short:   "Say what a module file is, or all that is wrong with it",
		Long:    "Say what a module file is, or all that is wrong with it. No server is needed.",
		Example: "  submit module check mine.wasm",
		Args:    cli.WantArgs(1, 1, "a FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := cli.OneOf("output", output, "text", "json"); err != nil {
				return err
			}
			_, m, err := readModule(args[0])
			if err != nil {
				return s.printFaults(args[0], err)
			}
			if output == "json" {
				return s.printJSON(map[string]any{
					"digest": m.Digest, "size": m.Size, "kind": m.Kind, "functions": list(m.Functions), "imports": list(m.Imports),
				})
			}
			return s.printFields([][2]string{
				{"kind", string(m.Kind)},
				{"functions", strings.Join(m.Functions, " ")},
				{"imports", strings.Join(m.Imports, " ")},
				{"memory", fmt.Sprintf("%s at the start", binaryCount(uint64(m.Memory.Min)*65_536))},
				{"size", fmt.Sprintf("%d bytes", m.Size)},
				{"digest", m.Digest},
			})
		},
	}
	cmd.Flags().StringVar(&output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

// list is a list that JSON shows as [] if it is empty.
func list(names []string) []string { return append([]string{}, names...) }

func binaryCount(n uint64) string {
	if n%(1<<20) == 0 && n > 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// printFaults lists the faults of a module one a line, and returns the error of the command.
func (s *session) printFaults(path string, err error) error {
	if api.CodeOf(err) != api.CodeBadModule {
		return err
	}
	e := api.AsError(err)
	n := 0
	for ; e.Details[fmt.Sprintf("fault.%d", n+1)] != ""; n++ {
		s.note("%s: %s", path, e.Details[fmt.Sprintf("fault.%d", n+1)])
	}
	if n < 2 {
		return err
	}
	hint := ""
	if e.Hint != "" {
		hint = " (" + e.Hint + ")"
	}
	return fmt.Errorf("%s cannot be used: %s%s", path, exactly(uint64(n), "fault"), hint)
}

func (s *session) printFields(fields [][2]string) error {
	w := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	for _, f := range fields {
		value := f[1]
		if value == "" {
			value = "-"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", f[0], appendEscaped(nil, []byte(value), printable)) // Flush fails if this did
	}
	return w.Flush()
}

func (s *session) moduleAddCommand() *cobra.Command {
	var name, reduce, output string
	cmd := &cobra.Command{
		Use:   "add FILE.wasm",
		Short: "Put a module into the catalogue",
		Long: "Put a module into the catalogue, after checking it. Without --name it is called after its file; without\n" +
			"a version it gets the next whole number. A version that exists with other bytes is refused.",
		Example: "  submit module add mine.wasm --reduce sum\n" +
			"  submit module add build/out.wasm --name mine@1.2",
		Args: cli.WantArgs(1, 1, "a FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.addModule(cmd.Context(), args[0], name, reduce, output)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "NAME or NAME@VERSION (default: the file's name)")
	cmd.Flags().StringVar(&reduce, "reduce", "", "reduce of jobs that name none")
	cmd.Flags().StringVar(&output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

func (s *session) addModule(ctx context.Context, path, name, reduce, output string) error {
	if err := s.prepare(output); err != nil {
		return err
	}
	if name == "" {
		name = nameOf(path)
	}
	ref, err := plugins.ParseRef(name)
	if err != nil || ref.Digest != "" {
		return cli.Usagef("--name %q is no NAME or NAME@VERSION: a name has 1 to 64 of a-z 0-9 _ -", name)
	}
	file, _, err := readModule(path)
	if err != nil {
		return s.printFaults(path, err)
	}
	client, ctx, done, err := s.connect(ctx, uploadPatience)
	if err != nil {
		return err
	}
	defer done()
	m, err := client.AddModule(ctx, ref.Name, ref.Version, reduce, file)
	if err != nil {
		return err
	}
	if output == "json" {
		return s.printJSON(m)
	}
	return s.printModule(m)
}

// nameOf makes a module's name of its file's.
func nameOf(path string) string {
	name := strings.ToLower(strings.TrimSuffix(filepath.Base(path), ".wasm"))
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, name)
	return strings.TrimLeft(name, "-_")
}

func (s *session) printModule(m api.Module) error {
	fields := [][2]string{
		{"name", m.Name},
		{"version", m.Version},
		{"kind", m.Kind},
		{"functions", strings.Join(m.Functions, " ")},
		{"reduce", m.Reduce},
		{"size", fmt.Sprintf("%d bytes", m.Size)},
		{"digest", m.Digest},
	}
	if m.Builtin {
		fields = append(fields, [2]string{"built in", "yes"})
	}
	return s.printFields(fields)
}

func (s *session) moduleListCommand() *cobra.Command {
	return s.catalogueCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the catalogue",
		Example: "  submit module list\n  submit module list --output json",
		Args:    cli.WantArgs(0, 0, ""),
	}, func(ctx context.Context, client *pinion.Client, output string, _ []string) error {
		modules, err := client.Modules(ctx)
		if err != nil {
			return err
		}
		if output == "json" {
			return s.printJSON(api.ModulesReply{Modules: modules})
		}
		w := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "NAME\tVERSION\tKIND\tREDUCE\tSIZE\tDIGEST\tFUNCTIONS")
		for _, m := range modules {
			reduce := m.Reduce
			if reduce == "" {
				reduce = "-"
			}
			line := fmt.Appendf(nil, "%s\t%s\t%s\t%s\t%d\t%.12s\t%s", m.Name, m.Version, m.Kind, reduce, m.Size, m.Digest, strings.Join(m.Functions, " "))
			_, _ = fmt.Fprintf(w, "%s\n", line) // Flush fails if this did
		}
		return w.Flush()
	})
}

func (s *session) moduleShowCommand() *cobra.Command {
	return s.catalogueCommand(&cobra.Command{
		Use:     "show MODULE",
		Short:   "Show one module",
		Long:    "Show one module: a NAME (its newest version), NAME@VERSION or a digest.",
		Example: "  submit module show wordcount\n  submit module show mine@1.2 --output json",
		Args:    cli.WantArgs(1, 1, "a MODULE"),
	}, func(ctx context.Context, client *pinion.Client, output string, args []string) error {
		m, err := client.Module(ctx, args[0])
		if err != nil {
			return err
		}
		if output == "json" {
			return s.printJSON(m)
		}
		return s.printModule(m)
	})
}

func (s *session) moduleRemoveCommand() *cobra.Command {
	return s.catalogueCommand(&cobra.Command{
		Use:     "remove MODULE",
		Short:   "Take a module out of the catalogue",
		Long:    "Take NAME@VERSION, or with NAME all of its versions, out of the catalogue. Jobs that run are not touched.",
		Example: "  submit module remove mine@1.1\n  submit module remove mine",
		Args:    cli.WantArgs(1, 1, "a MODULE"),
	}, func(ctx context.Context, client *pinion.Client, output string, args []string) error {
		if err := client.RemoveModule(ctx, args[0]); err != nil {
			return err
		}
		if output == "json" {
			return s.printJSON(map[string]string{"removed": args[0]})
		}
		s.note("removed %s", args[0])
		return nil
	})
}

// catalogueCommand completes a command that asks the catalogue.
func (s *session) catalogueCommand(cmd *cobra.Command, fn func(ctx context.Context, client *pinion.Client, output string, args []string) error) *cobra.Command {
	var output string
	cmd.Flags().StringVar(&output, "output", "text", "text, or json for one JSON object on stdout")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return s.withClient(cmd.Context(), output, func(ctx context.Context, client *pinion.Client) error {
			return fn(ctx, client, output, args)
		})
	}
	return cmd
}
