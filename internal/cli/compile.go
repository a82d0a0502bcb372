package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/wasmhost/child"
)

// CompileModule is the command with which a program starts itself to compile a module: see package child.
const CompileModule = "compile-module"

// CompileCommand is that command. Nobody needs to see it.
func CompileCommand() *cobra.Command {
	return &cobra.Command{
		Use:    CompileModule,
		Short:  "Compile a module for the process that started this one",
		Hidden: true,
		Args:   WantArgs(0, 0, ""),
		// Its limits come from that process, and so does everything else.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if child.Main(cmd.InOrStdin(), cmd.OutOrStdout()) != 0 {
				return errors.New("the module was not compiled")
			}
			return nil
		},
	}
}
