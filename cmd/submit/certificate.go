package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/pmr"
)

// certificateOptions are the flags of job certificate.
type certificateOptions struct {
	file, output  string
	rows, buckets bool
}

// certificateReport is what job certificate prints as JSON, and what --file reads.
type certificateReport struct {
	Certificate api.Certificate `json:"certificate"`
	Check       checkReport     `json:"check"`
}

// checkReport is what became of checking a certificate.
type checkReport struct {
	Right  bool          `json:"right"` // nothing is wrong and nothing is left open
	Cut    string        `json:"cut"`   // found, purged or differs
	Table  uint64        `json:"table"` // log position of the table of owners
	Proven int           `json:"proven"`
	Open   []buckets.ID  `json:"open,omitempty"` // buckets of which the log does not tell any more
	Faults []faultReport `json:"faults,omitempty"`
	Rows   string        `json:"rows,omitempty"` // same or differ, if --rows asked
}

type faultReport struct {
	Kind    string       `json:"kind"`
	Buckets []buckets.ID `json:"buckets,omitempty"`
	Text    string       `json:"text"`
}

func (s *session) jobCertificateCommand() *cobra.Command {
	var o certificateOptions
	cmd := &cobra.Command{
		Use:   "certificate ID",
		Short: "Print a job's certificate and check it against the log",
		Long: "Print the certificate of a job that is done: who read which bucket, at which log position, how many records\n" +
			"and pairs there were, and digests of module, params and rows. Then it is checked again, from the log and not\n" +
			"from a router's word: that the cut is in the log, that the buckets are disjoint and all that were wanted, and\n" +
			"that each was read by its owner at the cut. With --rows the rows are fetched again and their digest compared.\n" +
			"\n" +
			"Where the log was purged beyond the cut, a bucket is still proven if it has had the same owner since. The exit\n" +
			"status is 1 if something is wrong, or if for some bucket it cannot be known any more.",
		Example: "  submit job certificate 4hzqk7\n  submit job certificate 4hzqk7 --rows\n" +
			"  submit job certificate 4hzqk7 --output json > kept.json\n  submit job certificate --file kept.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if o.file != "" {
				return cli.WantArgs(0, 0, "")(cmd, args)
			}
			return cli.WantArgs(1, 1, "the ID of a job")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.certificate(cmd.Context(), args, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "check the certificate in this file, as --output json wrote it, instead of a job's")
	f.BoolVar(&o.rows, "rows", false, "fetch the rows again and compare their digest")
	f.BoolVar(&o.buckets, "buckets", false, "list every bucket")
	f.StringVar(&o.output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

func (s *session) certificate(ctx context.Context, args []string, o certificateOptions) error {
	if err := s.prepare(o.output); err != nil {
		return err
	}
	patience := recordPatience
	if o.rows {
		patience = 0 // as long as they take
	}
	client, ctx, done, err := s.connect(ctx, patience)
	if err != nil {
		return err
	}
	defer done()
	var cert api.Certificate
	if o.file != "" {
		cert, err = readCertificate(o.file)
	} else {
		cert, err = client.Certificate(ctx, args[0])
	}
	if err != nil {
		return err
	}
	check, err := client.CheckCertificate(ctx, cert)
	if err != nil {
		return err
	}
	verdict, rows := check.Err(), ""
	if o.rows {
		if rows, err = compareRows(ctx, client, cert); err != nil {
			return err
		}
		if rows != rowsSame && verdict == nil {
			verdict = api.Errorf(api.CodeCoverage, "the rows of job %s are not those of its certificate", cert.Job)
		}
	}
	if o.output == "json" {
		err = s.printJSON(certificateReport{cert, reportOf(check, rows, verdict == nil)})
	} else {
		err = s.printCertificate(cert, check, rows, o.buckets)
	}
	if err != nil {
		return err
	}
	return verdict
}

func readCertificate(name string) (api.Certificate, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return api.Certificate{}, err
	}
	var report certificateReport
	if err := api.Decode(text, &report, api.Lenient); err != nil {
		return report.Certificate, fmt.Errorf("%s: %w", name, err)
	}
	if err := report.Certificate.Readable(); err != nil {
		return report.Certificate, fmt.Errorf("%s: %w", name, err)
	}
	return report.Certificate, nil
}

// What a comparison of rows comes to.
const (
	rowsSame   = "same"
	rowsDiffer = "differ"
)

// compareRows fetches a job's rows and compares them with its certificate.
func compareRows(ctx context.Context, client *pinion.Client, cert api.Certificate) (string, error) {
	result, err := client.Result(ctx, cert.Job)
	if err != nil {
		return "", err
	}
	digest := pmr.NewRowDigest()
	for row, err := range result.Rows(ctx) {
		if err != nil {
			return "", err
		}
		digest.Add(row)
	}
	if digest.Rows() == cert.Rows && digest.Sum() == cert.Output {
		return rowsSame, nil
	}
	return rowsDiffer, nil
}

func reportOf(check pinion.CertificateCheck, rows string, right bool) checkReport {
	r := checkReport{Right: right, Cut: string(check.Cut), Table: check.Table, Proven: check.Proven, Open: check.Open, Rows: rows}
	for _, f := range check.Faults {
		r.Faults = append(r.Faults, faultReport{string(f.Kind), f.Buckets, f.Text})
	}
	return r
}

func (s *session) printCertificate(c api.Certificate, check pinion.CertificateCheck, rows string, all bool) error {
	w := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("job", "%s, %s, at log position %d", plain(c.Job), attemptText(c.Attempt), c.Cut)
	if c.Module != "" {
		line("module", "%s", plain(c.Module))
	}
	line("params", "%s, not compared with anything", plain(c.Params))
	compared := ""
	if rows == "" {
		compared = ", not compared: --rows does"
	}
	line("rows", "%d, %s%s", c.Rows, plain(c.Output), compared)
	printCheck(line, c, check, rows)
	if err := w.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(s.stdout)
	return printCertified(s.stdout, c, all)
}

// attemptText names an attempt, and the take if the job was taken more than once.
func attemptText(attempt int) string {
	text := fmt.Sprintf("attempt %d", attempt%api.AttemptsPerTake)
	if take := attempt/api.AttemptsPerTake + 1; take > 1 {
		text = fmt.Sprintf("take %d, %s", take, text)
	}
	return text
}

// printCheck prints a line for each thing that was looked at, and one for each fault.
func printCheck(line func(name, format string, args ...any), c api.Certificate, check pinion.CertificateCheck, rows string) {
	switch check.Cut {
	case pinion.CutFound:
		line("cut", "is in the log, of this job and attempt")
	case pinion.CutPurged:
		line("cut", "is not in the log any more: it was purged")
	case pinion.CutDiffers:
		line("WRONG", "the log has no cut of this job and attempt at position %d", c.Cut)
		return
	}
	wanted := len(c.Wanted)
	if wanted == 0 {
		wanted = c.Buckets
	}
	line("buckets", "%d of %d were read exactly once, by their owner at the cut, as the log has it up to position %d", check.Proven, wanted, check.Table)
	if len(check.Open) > 0 {
		line("OPEN", "not provable any more: the log was purged, and the owner changed since: %s", buckets.Ranges(check.Open))
	}
	for _, f := range check.Faults {
		line("WRONG", "%s", f.Text)
	}
	switch rows {
	case rowsSame:
		line("answer", "the rows are those of the certificate")
	case rowsDiffer:
		line("WRONG", "the rows are not those of the certificate")
	}
}

// printCertified prints who read what.
func printCertified(out io.Writer, c api.Certificate, all bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "STORAGE\tINCARNATION\tPMR\tBUCKETS\tRECORDS\tPAIRS")
	for _, s := range c.Storages {
		var records, pairs uint64
		for _, b := range s.Buckets {
			records, pairs = records+b.Records, pairs+b.Pairs
		}
		_, _ = fmt.Fprintf(w, "%s\t%.8s\t%.8s\t%d\t%d\t%d\n", plain(s.Storage), plain(s.Incarnation), plain(s.PMR), len(s.Buckets), records, pairs)
	}
	if all {
		_, _ = fmt.Fprintln(w, "\nBUCKET\tSTORAGE\tGENERATION\tRECORDS\tPAIRS")
		for _, s := range c.Storages {
			for _, b := range s.Buckets {
				_, _ = fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%d\n", b.Bucket, plain(s.Storage), b.Generation, b.Records, b.Pairs)
			}
		}
	}
	return w.Flush()
}
