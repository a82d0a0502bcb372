package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

func (s *session) moduleCheckCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what a module file is, or all that is wrong with it",
		Long: "Say what a module file is, or all that is wrong with it. FILE is a .wasm file, or what run builds: a .go\n" +
			"file, a folder with a project, a .wat file. It is compiled as an engine will compile it. No server is\n" +
			"needed.",
		Example: "  submit module check mine.wasm\n" +
			"  submit module check ./map.go --output json",
		Args: cli.WantArgs(1, 1, "a FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.OneOf("output", output, "text", "json"); err != nil {
				return err
			}
			file, err := s.readModule(cmd.Context(), args[0])
			if err != nil {
				return s.printFaults(args[0], err)
			}
			checked, err := check(cmd.Context(), file)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return s.printCheck(file.manifest, checked, output)
		},
	}
	cmd.Flags().StringVar(&output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

// checked is what compiling a module tells.
type checked struct {
	metered int // bytes of the module with its fuel counted
	took    time.Duration
}

// check meters and compiles a module, as an engine does.
func check(ctx context.Context, file *moduleFile) (checked, error) {
	m, err := wasm.Read(file.bytes)
	if err != nil {
		return checked{}, err
	}
	metered, err := wasm.Meter(m, plugins.DefaultLimits().TableElements)
	if err != nil {
		return checked{}, err
	}
	dir, err := os.MkdirTemp("", "pinion-compiled-*") // compiled anew each time: it is told how long that takes
	if err != nil {
		return checked{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	host, err := newHost(ctx, dir)
	if err != nil {
		return checked{}, err
	}
	defer func() { _ = host.Close(context.Background()) }()
	began := time.Now()
	module, err := host.Compile(ctx, file.manifest.Digest, file.bytes)
	if err != nil {
		return checked{}, err
	}
	module.Close()
	return checked{len(metered), time.Since(began)}, nil
}

func (s *session) printCheck(m *plugins.Manifest, c checked, output string) error {
	if output == "json" {
		return s.printJSON(map[string]any{
			"digest": m.Digest, "size": m.Size, "metered_size": c.metered, "compile_ms": c.took.Milliseconds(), "kind": m.Kind,
			"functions": list(m.Functions), "imports": list(m.Imports), "memory_bytes": uint64(m.Memory.Min) * 65_536,
		})
	}
	return s.printFields([][2]string{
		{"kind", string(m.Kind)},
		{"functions", strings.Join(m.Functions, " ")},
		{"imports", strings.Join(m.Imports, " ")},
		{"memory", fmt.Sprintf("%s at the start, %s at the most", binaryCount(uint64(m.Memory.Min)*65_536),
			binaryCount(uint64(plugins.DefaultLimits().MemoryPages)*65_536))},
		{"size", fmt.Sprintf("%d bytes; %d with fuel counted and debug sections left out (%+.0f %%)", m.Size, c.metered, 100*(float64(c.metered)/float64(m.Size)-1))},
		{"compiled", fmt.Sprintf("in %s here", seconds(c.took))},
		{"digest", m.Digest},
	})
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
	var faults []string
	for i := 1; e.Details[fmt.Sprintf("fault.%d", i)] != ""; i++ {
		faults = append(faults, e.Details[fmt.Sprintf("fault.%d", i)])
	}
	if len(faults) < 2 {
		return err
	}
	for _, fault := range faults {
		s.note("%s: %s", path, fault)
	}
	hint := ""
	if e.Hint != "" {
		hint = " (" + e.Hint + ")"
	}
	return fmt.Errorf("%s cannot be used: %s%s", path, exactly(uint64(len(faults)), "fault"), hint)
}
