package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) exportCommand() *cobra.Command {
	var space, form string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print all records of a space",
		Long: `Print all records of a space as they are at one log position, in the order of their keys, to stdout.

Formats:
  lines   each value and a line feed. A value that holds a line feed is refused, as it would come back as two
          records; a carriage return at the end of one would be taken for a part of the line's end.
  ndjson  {"key": .., "value": ..}, one record a line; what is not UTF-8 is {"base64": ".."}. A key that the
          log assigned is #sequence.index.bucket.

Assigned keys ascend in the order of the log, so lines that were imported come out in their order.`,
		Example: "  submit export > all.txt\n" +
			"  submit export --space events --format ndjson | gzip > events.ndjson.gz",
		Args: cli.WantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.export(cmd.Context(), space, form) },
	}
	cmd.Flags().StringVar(&space, "space", "", "space to read (default \"default\")")
	cmd.Flags().StringVar(&form, "format", "lines", "lines or ndjson")
	return cmd
}

func (s *session) export(ctx context.Context, space, form string) error {
	if err := s.options.Settle(); err != nil {
		return err
	}
	if err := cli.OneOf("format", form, "lines", "ndjson"); err != nil {
		return err
	}
	timeout, err := s.options.Timeout(jobTimeout)
	if err != nil {
		return err
	}
	var out rowWriter = &valueWriter{out: bufio.NewWriterSize(s.stdout, readBuffer)}
	if form == "ndjson" {
		out = newRowWriter(form, s.stdout)
	}
	client, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return s.runJob(ctx, client, pinion.Job{Space: space, Reduce: "none", Sort: "key", Timeout: timeout}, out, false)
}

// valueWriter prints the format lines.
type valueWriter struct{ out *bufio.Writer }

func (w *valueWriter) write(row api.Row) error {
	value := []byte(row.Value.Bytes)
	if row.Value.Kind != api.KindBytes {
		value = []byte(row.Value.Text())
	}
	if bytes.IndexByte(value, '\n') >= 0 {
		_ = w.out.Flush()
		return fmt.Errorf("the value of key %.80s holds a line feed, so it is no line (use --format ndjson)", appendKey(nil, row.Key, printable))
	}
	if _, err := w.out.Write(value); err != nil {
		return err
	}
	return w.out.WriteByte('\n')
}

func (w *valueWriter) close(api.JobStats) error { return w.out.Flush() }
