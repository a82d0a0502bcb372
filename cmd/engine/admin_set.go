package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) setCommand() *cobra.Command {
	return s.adminCommand(&cobra.Command{
		Use:   "set [NAME [VALUE|default]]",
		Short: "Show or change settings of the running cluster",
		Long: "Without a value it shows the settings, with the values they have by default. Storages and routers follow a\n" +
			"change within some seconds.",
		Example: "  engine set\n  engine set parallel_moves 4\n  engine set move_bandwidth 50MiB\n  engine set takeover_grace default",
		Args:    cli.WantArgs(0, 2, "a setting and its value"),
	}, func(ctx context.Context, a *admin, args []string) error {
		var reply api.TopologyReply
		if err := a.ask(ctx, "topology", api.TopologyRequest{}, &reply); err != nil {
			return err
		}
		if len(args) == 0 {
			return a.printSettings(reply.Settings)
		}
		before, err := settingOf(reply.Settings, args[0])
		if err != nil {
			return err
		}
		if len(args) == 1 {
			return a.printSettings([]api.Setting{before})
		}
		value := args[1]
		if value == "default" {
			value = ""
		}
		reply = api.TopologyReply{}
		if err := a.ask(ctx, "topology", api.TopologyRequest{Set: map[string]string{args[0]: value}}, &reply); err != nil {
			return err
		}
		a.tell("to undo: engine set %s %s", before.Name, before.Value)
		after, err := settingOf(reply.Settings, args[0])
		if err != nil {
			return err
		}
		return a.printSettings([]api.Setting{after})
	})
}

func settingOf(list []api.Setting, name string) (api.Setting, error) {
	var names []string
	for _, s := range list {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	if near := api.Nearest(name, names); near != "" {
		return api.Setting{}, cli.Usagef("there is no setting %q; did you mean %s?", name, near)
	}
	return api.Setting{}, cli.Usagef("there is no setting %q; there are %s", name, strings.Join(names, ", "))
}

func (a *admin) printSettings(list []api.Setting) error {
	return a.print(list, func() error {
		t := tabwriter.NewWriter(a.s.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "SETTING\tVALUE\tDEFAULT\tWHAT")
		for _, s := range list {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, s.Value, s.Default, s.About)
		}
		return t.Flush()
	})
}
