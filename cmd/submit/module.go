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
		Short: "Modules: to write, check and measure them, and the catalogue",
		Long: "init, check and bench help to write a module; the others keep the cluster's catalogue. Bytes are stored\n" +
			"once there, by digest; a name has versions, which do not change. wordcount and grep are built in.",
		Example: "  submit module init --lang go words\n" +
			"  submit module check mine.wasm\n" +
			"  submit module add mine.wasm --reduce sum\n" +
			"  submit module list",
	}
	cli.Group(cmd, s.moduleInitCommand(), s.moduleCheckCommand(), s.moduleBenchCommand(),
		s.moduleAddCommand(), s.moduleListCommand(), s.moduleShowCommand(), s.moduleRemoveCommand())
	return cmd
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
		Use:   "add FILE",
		Short: "Put a module into the catalogue",
		Long: "Put a module into the catalogue, after checking it. FILE is a .wasm file, or what run builds: a .go file,\n" +
			"a folder with a project, a .wat file. Without --name it is called after FILE; without a version it gets\n" +
			"the next whole number. A version that exists with other bytes is refused.",
		Example: "  submit module add mine.wasm --reduce sum\n" +
			"  submit module add build/out.wasm --name mine@1.2\n" +
			"  submit module add ./map.go --name words --reduce sum",
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
	file, err := s.readModule(ctx, path)
	if err != nil {
		return s.printFaults(path, err)
	}
	client, ctx, done, err := s.connect(ctx, uploadPatience)
	if err != nil {
		return err
	}
	defer done()
	before, _ := client.Module(ctx, ref.String()) // it need not be there, and what else fails, fails below
	m, err := client.AddModule(ctx, ref.Name, ref.Version, reduce, file.bytes)
	if err != nil {
		return err
	}
	if before.Version == m.Version && before.Digest == file.manifest.Digest {
		s.note("unchanged: %s@%s has these bytes already", m.Name, m.Version)
	}
	if output == "json" {
		return s.printJSON(m)
	}
	return s.printModule(m)
}

// nameOf makes a module's name of that of its file or folder.
func nameOf(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	name := filepath.Base(path)
	switch ext := filepath.Ext(name); ext {
	case ".wasm", ".go", ".wat":
		name = strings.TrimSuffix(name, ext)
	}
	name = strings.ToLower(name)
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
		Long:    "Take NAME@VERSION, or NAME if it has one version only, out of the catalogue. Jobs that run are not touched.",
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
