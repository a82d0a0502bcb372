package main

import (
	"cmp"
	"context"
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

// jobsOptions are the flags of jobs.
type jobsOptions struct {
	state, client, output string
	limit                 int
}

func (s *session) jobsCommand() *cobra.Command {
	var o jobsOptions
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List jobs, the newest first",
		Long: `List jobs, the newest first: those that were submitted with --detach, until the history forgets them (engine
router --history), and those that a router runs for somebody who waits, or still has the result of.`,
		Example: "  submit jobs\n  submit jobs --state running\n  submit jobs --output json",
		Args:    cli.WantArgs(0, 0, ""),
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.jobs(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.state, "state", "", "only jobs of this state: "+strings.Join(jobStates(), ", "))
	f.StringVar(&o.client, "client", "", "only jobs of this client")
	f.IntVar(&o.limit, "limit", 100, fmt.Sprintf("jobs at the most; 0 is as many as one answer may list, %d", api.MostListed))
	f.StringVar(&o.output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

func (s *session) jobs(ctx context.Context, o jobsOptions) error {
	if o.state != "" {
		if err := cli.OneOf("state", o.state, jobStates()...); err != nil {
			return err
		}
	}
	if o.limit < 0 || o.limit > api.MostListed {
		return cli.Usagef("--limit is %d; it must be 0 to %d", o.limit, api.MostListed)
	}
	if o.limit == 0 {
		o.limit = api.MostListed
	}
	return s.withClient(ctx, o.output, func(ctx context.Context, client *pinion.Client) error {
		reply, err := client.Jobs(ctx, pinion.JobFilter{State: api.JobStatus(o.state), Client: o.client, Limit: o.limit})
		if err != nil {
			return err
		}
		if o.output == "json" {
			return s.printJSON(reply)
		}
		if err := printJobs(s.stdout, reply.Jobs); err != nil {
			return err
		}
		if reply.More > 0 {
			s.note("and %d more (--limit, --state)", reply.More)
		}
		return nil
	})
}

// jobStates are the values of --state.
func jobStates() []string {
	var names []string
	for _, state := range api.JobStatuses() {
		names = append(names, string(state))
	}
	return names
}

func printJobs(w io.Writer, jobs []api.JobInfo) error {
	if len(jobs) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "JOB\tSTATE\tMODULE\tSPACE\tROUTER\tBEGUN\tROWS\tWHY")
	for _, j := range jobs {
		rows, why := "-", ""
		if j.State == api.JobDone {
			rows = fmt.Sprint(j.Rows)
		}
		if j.Error != nil && j.State != api.JobCanceled {
			why = string(j.Error.Code)
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", j.Job, j.State, plain(cmp.Or(j.Module, noModule)), plain(j.Space),
			plain(cmp.Or(j.Router, "-")), clockTime(cmp.Or(j.SubmittedMS, j.StartedMS)), rows, why)
	}
	return tw.Flush()
}

// plain is a text without what a terminal would obey.
func plain(text string) string { return string(appendEscaped(nil, []byte(text), printable)) }

// clockTime is a time as people read it, of the clock of whoever wrote it down.
func clockTime(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).Format(time.DateTime)
}

// checkDetached refuses what means nothing for a job that nobody waits for.
func (o runOptions) checkDetached() error {
	switch {
	case !o.detach:
		return nil
	case o.local.given:
		return cli.Usagef("--detach leaves the job to a cluster, --local runs it here: only one of them can hold")
	case o.golden != "":
		return cli.Usagef("--golden compares the rows, which --detach does not wait for")
	case o.output != "" && o.output != "json":
		return cli.Usagef("--detach prints the job's id and no rows: --output is json or left away")
	}
	return nil
}

// submitJob stores a job and prints its id.
func (s *session) submitJob(ctx context.Context, client *pinion.Client, job pinion.Job, output string) error {
	job.Proof = true
	told := "submitted"
	if job.ID != "" { // else it is new
		if before, err := client.Job(ctx, job.ID); err == nil {
			told = fmt.Sprintf("job %s was submitted before and is %s", job.ID, before.State)
		}
	}
	id, err := client.Submit(ctx, job)
	if err != nil {
		return err
	}
	s.note("%s; see: submit job %s, wait for it: submit job wait %s, have its rows: submit job result %s", told, id, id, id)
	if output == "json" {
		return s.printJSON(api.JobName{Job: id})
	}
	_, err = fmt.Fprintln(s.stdout, id)
	return err
}
