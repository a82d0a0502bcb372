package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/wasmhost/child"
)

// compileModule is the command with which an engine starts itself to compile a module.
const compileModule = "compile-module"

func (s *session) compileCommand() *cobra.Command {
	return &cobra.Command{
		Use:    compileModule,
		Short:  "Compile a module for the engine that started this process",
		Hidden: true,
		Args:   cli.WantArgs(0, 0, ""),
		// Its limits come from the engine, and so does everything else.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if child.Main(nil, cmd.InOrStdin(), s.stdout) != 0 {
				return errors.New("the module was not compiled")
			}
			return nil
		},
	}
}
