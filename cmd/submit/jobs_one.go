package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) jobCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "job ID",
		Short: "Show a job, wait for it, get its result, or cancel it",
		Long: "Show how far a job is: its state, who runs it, how often it was begun, its progress, and why it failed.\n" +
			"`submit jobs` lists them; `submit run --detach` makes them.",
		Example: "  submit job 4hzqk7\n  submit job wait 4hzqk7\n  submit job result 4hzqk7 --output ndjson > rows.ndjson\n  submit job cancel 4hzqk7",
		RunE:    func(cmd *cobra.Command, args []string) error { return s.showJob(cmd.Context(), args[0], output) },
	}
	cmd.Flags().StringVar(&output, "output", "text", "text, or json for one JSON object on stdout")
	cmd.AddCommand(s.jobWaitCommand(), s.jobResultCommand(), s.jobCertificateCommand(), s.jobCancelCommand())
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return cli.WantArgs(1, 1, "the ID of a job")(cmd, args)
		}
		var names []string
		for _, child := range cmd.Commands() {
			names = append(names, child.Name())
		}
		if near := api.Nearest(args[0], names); near != "" {
			return cli.Usagef("there is no command %q; did you mean %s?", "job "+args[0], near)
		}
		return cli.Usagef("job takes the ID of one job; %q is too much", args[1])
	}
	return cmd
}

func (s *session) showJob(ctx context.Context, id, output string) error {
	return s.withClient(ctx, output, func(ctx context.Context, client *pinion.Client) error {
		info, err := client.Job(ctx, id)
		if err != nil {
			return err
		}
		if output == "json" {
			return s.printJSON(info)
		}
		return printJob(s.stdout, info)
	})
}

// printJob prints a job, one property a line.
func printJob(w io.Writer, j api.JobInfo) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(tw, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("job", "%s", j.Job)
	line("state", "%s", stateText(j))
	line("module", "%s", plain(strings.TrimSpace(cmp.Or(j.Module, noModule)+" "+j.Function)))
	line("reduce", "%s", plain(j.Reduce))
	line("space", "%s", plain(j.Space))
	if len(j.Wanted) > 0 {
		line("part", "%s", exactly(uint64(len(j.Wanted)), "bucket"))
	}
	if j.Client != "" {
		line("client", "%s", plain(j.Client))
	}
	if j.Router != "" {
		line("router", "%s", j.Router)
	}
	if j.Durable {
		line("taken", "%s", exactly(uint64(j.Take), "time"))
		line("submitted", "%s", clockTime(j.SubmittedMS))
	}
	line("begun", "%s", clockTime(j.StartedMS))
	line("ended", "%s", clockTime(j.EndedMS))
	if j.Error != nil {
		name := "error"
		if !j.State.Over() {
			name = "last time"
		}
		line(name, "%s: %s", j.Error.Code, plain(j.Error.Error()))
	}
	if j.Stats != nil {
		line("result", "%s, %s, at log position %d; %s in %s", count(j.Rows, "row"), byteCount(j.Bytes), j.Stats.Cut,
			count(uint64(j.Attempts), "attempt"), seconds(time.Duration(j.Stats.Millis)*time.Millisecond))
	}
	return tw.Flush()
}

// stateText is a job's state and how far it is.
func stateText(j api.JobInfo) string {
	text := string(j.State)
	if j.Cancel {
		text += ", being cancelled"
	}
	if p := j.Progress; p != nil && p.Place > 0 {
		text += fmt.Sprintf(" as number %d of its router", p.Place)
	} else if p != nil && j.State == api.JobRunning {
		text += fmt.Sprintf(": %s, %d/%d buckets, %s, %s", p.Phase, p.Buckets, p.Of, count(p.Records, "record"), byteCount(p.Bytes))
		if p.Attempt > 1 {
			text += fmt.Sprintf(", attempt %d", p.Attempt)
		}
		if p.Reason != "" {
			text += "; " + plain(p.Reason)
		}
	}
	return text
}

func (s *session) jobWaitCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "wait ID",
		Aliases: []string{"watch"},
		Short:   "Wait until a job has ended",
		Long: "Wait until a job has ended, and show its progress on a terminal. The exit status is 0 if the job is done; if it\n" +
			"failed, its error follows. With --output json, stdout has the job as it ended, done or not. --timeout bounds the wait, and Ctrl-C ends it: neither ends the job.",
		Example: "  submit job wait 4hzqk7 && submit job result 4hzqk7",
		Args:    cli.WantArgs(1, 1, "the ID of a job"),
		RunE:    func(cmd *cobra.Command, args []string) error { return s.waitForJob(cmd.Context(), args[0], output) },
	}
	cmd.Flags().StringVar(&output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

func (s *session) waitForJob(ctx context.Context, id, output string) error {
	if err := s.prepare(output); err != nil {
		return err
	}
	client, ctx, done, err := s.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer done()
	if _, err := client.Job(ctx, id); api.CodeOf(err) == api.CodeUnknownJob { // it suggests another; Wait does not
		return err
	}
	settings, err := client.Settings(ctx)
	if err != nil {
		return err
	}
	bar := newProgress(s.stderr, "waiting", int64(settings.Buckets), false)
	var progress func(api.JobProgress)
	if bar.bar != nil {
		progress = func(p api.JobProgress) { bar.tell(p.Phase, p.Buckets) }
	}
	result, err := client.Wait(ctx, id, progress)
	bar.end()
	if output == "json" && ctx.Err() == nil {
		return s.printEnd(ctx, client, id, err)
	}
	if err != nil {
		s.printFailure(err, nil)
		return err
	}
	s.noteCover(result, settings.Buckets, false)
	s.note("%s: submit job result %s", count(result.Stats.Rows, "row"), id)
	return nil
}

// printEnd prints a job that has ended as JSON, and returns the error that it ended with.
func (s *session) printEnd(ctx context.Context, client *pinion.Client, id string, end error) error {
	info, err := client.Job(ctx, id)
	if err == nil {
		err = s.printJSON(info)
	}
	if end != nil {
		return end
	}
	return err
}

func (s *session) jobResultCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "result ID",
		Short: "Print the rows of a job that is done",
		Long: "Print the rows of a job that is done, as `submit run` does. They can be had again until the history forgets the\n" +
			"job; those of a job that somebody waited for only some minutes.",
		Example: "  submit job result 4hzqk7\n  submit job result 4hzqk7 --limit 20 --output table",
		Args:    cli.WantArgs(1, 1, "the ID of a job"),
		RunE:    func(cmd *cobra.Command, args []string) error { return s.jobResult(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.limit, "limit", 0, "rows at the most (default all)")
	f.StringVar(&o.output, "output", "", "table, tsv, ndjson or json")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "tell the work of the guests, too")
	return cmd
}

func (s *session) jobResult(ctx context.Context, id string, o runOptions) error {
	if o.output != "" {
		if err := cli.OneOf("output", o.output, outputs...); err != nil {
			return err
		}
	}
	if o.limit < 0 {
		return cli.Usagef("--limit may not be negative")
	}
	if err := s.options.Settle(); err != nil {
		return err
	}
	client, ctx, done, err := s.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer done()
	if _, err := client.Job(ctx, id); err != nil {
		return err
	}
	settings, err := client.Settings(ctx)
	if err != nil {
		return err
	}
	result, err := client.Result(ctx, id)
	switch {
	case api.CodeOf(err) == api.CodeBusy:
		return api.AsError(err).WithHint("wait for it: submit job wait %s", id)
	case err != nil:
		s.printFailure(err, nil)
		return err
	}
	proven := len(result.Stats.Pinned) > 0 // whoever started it asked for the proof
	if proven {
		if err := result.CheckCoverage(settings.Buckets); err != nil {
			return err
		}
	}
	if err := printRows(ctx, result, s.rowWriter(o), o.limit); err != nil {
		return err
	}
	if proven {
		s.noteCover(result, settings.Buckets, o.verbose)
	}
	return nil
}

func (s *session) jobCancelCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a job",
		Long: "End a job: its functions are stopped and its buckets let go. Of a job that runs, that may take a moment. One that\n" +
			"was over stays as it is; the exit status is 1 then, but for one that was cancelled before.",
		Example: "  submit job cancel 4hzqk7",
		Args:    cli.WantArgs(1, 1, "the ID of a job"),
		RunE:    func(cmd *cobra.Command, args []string) error { return s.cancelJob(cmd.Context(), args[0], output) },
	}
	cmd.Flags().StringVar(&output, "output", "text", "text, or json for one JSON object on stdout: how far the job is, and over if it had ended before")
	return cmd
}

func (s *session) cancelJob(ctx context.Context, id, output string) error {
	return s.withClient(ctx, output, func(ctx context.Context, client *pinion.Client) error {
		if _, err := client.Job(ctx, id); err != nil {
			return err
		}
		state, err := client.Cancel(ctx, id)
		if err != nil {
			return err
		}
		if output == "json" {
			if err := s.printJSON(state); err != nil {
				return err
			}
		}
		switch {
		case state.Over && state.State != api.JobCanceled:
			return errors.New("job " + id + " was over already: " + string(state.State))
		case state.Over:
			s.note("job %s was cancelled before", id)
		case state.State == api.JobRunning:
			s.note("job %s is being cancelled", id)
		default:
			s.note("job %s is cancelled", id)
		}
		return nil
	})
}
