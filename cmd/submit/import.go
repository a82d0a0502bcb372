package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/internal/cli"
)

// importOptions are the flags of import.
type importOptions struct {
	space, format, key, output string
	skipBad                    int
}

func (s *session) importCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE... | -",
		Short: "Store the lines of files as records",
		Long: `Store the lines of files, or of stdin (-), as records. .gz and .zst are read as they are.

Formats, by the file's extension (.ndjson and .jsonl are ndjson, all else is lines) or by --format:
  lines   Each line is a record. The value is the line's bytes without LF or CR LF; the key is assigned.
          A CR elsewhere is data, and an empty line is an empty record.
  ndjson  Each line is one JSON value; blank lines are left out. The value is the line as it stands. With
          --key FIELD the key is the text of that string or number in the outermost object, else it is
          assigned. Refused are also: a key that an object has twice, a number that no 64-bit float holds,
          and text that is not UTF-8.

A UTF-8 byte order mark at the beginning is left out. UTF-16 is refused.

A bad line ends the import. The error names it; everything before it is stored, and stderr says how many
records that are. With --skip-bad N up to N bad lines are named and left out; then the exit status is 1, as
not everything was imported.`,
		Example: "  submit import access.log\n" +
			"  zcat old.gz | submit import -\n" +
			"  submit import --space events --key id events-*.ndjson.zst",
		Args: cli.WantArgs(1, -1, "a FILE or - for stdin"),
		RunE: func(cmd *cobra.Command, files []string) error { return s.importFiles(cmd.Context(), o, files) },
	}
	f := cmd.Flags()
	f.StringVar(&o.space, "space", "", "space to store into (default \"default\")")
	f.StringVar(&o.format, "format", "", "lines or ndjson, for all files")
	f.StringVar(&o.key, "key", "", "field of each ndjson object that is the record's key")
	f.IntVar(&o.skipBad, "skip-bad", 0, "how many bad lines may be left out")
	f.StringVar(&o.output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

// importItem is a file with its format.
type importItem struct {
	source
	format string
}

// items checks everything that can be known before a server is asked.
func (o importOptions) items(files []string) ([]importItem, error) {
	if o.format != "" {
		if err := cli.OneOf("format", o.format, "lines", "ndjson"); err != nil {
			return nil, err
		}
	}
	if err := cli.OneOf("output", o.output, "text", "json"); err != nil {
		return nil, err
	}
	if o.skipBad < 0 {
		return nil, cli.Usagef("--skip-bad is %d; it may not be negative", o.skipBad)
	}
	var items []importItem
	stdins := 0
	for _, path := range files {
		item := importItem{format: o.format}
		if path == stdinName {
			stdins++
		}
		if item.format == "" {
			item.format = formatOf(path)
		}
		if o.key != "" && item.format != "ndjson" {
			return nil, cli.Usagef("--key needs records with fields, but %s is read as %s: give --format ndjson if it is", path, item.format)
		}
		items = append(items, item)
	}
	if stdins > 1 {
		return nil, cli.Usagef("stdin (-) can be read only once")
	}
	for i, path := range files {
		var err error
		if items[i].source, err = findSource(path); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (s *session) importFiles(ctx context.Context, o importOptions, files []string) error {
	if err := s.options.Settle(); err != nil {
		return err
	}
	items, err := o.items(files)
	if err != nil {
		return err
	}
	client, ctx, done, err := s.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer done()
	settings, err := client.Settings(ctx)
	if err != nil {
		return err
	}
	writing, stop := outliving(ctx, flushPatience)
	defer stop()
	w, err := client.NewWriter(writing, o.space)
	if err != nil {
		return err
	}
	began := time.Now()
	bar := newProgress(s.stderr, "importing", totalSize(items), true)
	in := &importer{w: w, key: o.key, skipBad: o.skipBad, max: settings.MaxRecord, bar: bar, note: func(format string, args ...any) {
		bar.clear()
		s.note(format, args...)
	}}
	for i := 0; err == nil && i < len(items); i++ {
		err = in.file(ctx, items[i], s.stdin)
	}
	closeErr := w.Close()
	bar.end()
	return s.imported(o, in, w.Written(), time.Since(began), err, closeErr)
}

// flushPatience is how long an import that was stopped waits until what it read is stored.
const flushPatience = 10 * time.Second

// outliving is a context that ends some time after another one.
func outliving(ctx context.Context, by time.Duration) (longer context.Context, stop func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(by, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() { unhook(); cancel() }
}

// totalSize is what all files together have on disk, -1 if that is not known.
func totalSize(items []importItem) int64 {
	total := int64(0)
	for _, i := range items {
		if i.size < 0 {
			return -1
		}
		total += i.size
	}
	return total
}

// imported writes the summary and returns the command's error.
func (s *session) imported(o importOptions, in *importer, stored pinion.Written, took time.Duration, err, closeErr error) error {
	what := "imported"
	if err != nil || closeErr != nil {
		what = "stopped; stored"
	}
	skipped := ""
	if in.bad > 0 {
		skipped = fmt.Sprintf(", %s left out", exactly(uint64(in.bad), "bad line"))
	}
	s.note("%s %s, %s, %s%s", what, exactly(stored.Records, "record"), byteCount(stored.Bytes), seconds(took), skipped)
	if o.output == "json" {
		jsonErr := s.printJSON(struct {
			Records uint64 `json:"records"`
			Bytes   uint64 `json:"bytes"`
			Skipped int    `json:"skipped"`
			Millis  int64  `json:"millis"`
		}{stored.Records, stored.Bytes, in.bad, took.Milliseconds()})
		err = errors.Join(err, jsonErr)
	}
	var bad *badLine
	switch {
	case closeErr != nil: // it has the final counts
		return closeErr
	case errors.As(err, &bad):
		return fmt.Errorf("%w (mend it, or leave bad lines out with --skip-bad N)", err)
	case err != nil:
		return err
	case in.bad > 0:
		return fmt.Errorf("%s left out", exactly(uint64(in.bad), "bad line"))
	}
	return nil
}

// recordWriter is what an importer writes to.
type recordWriter interface {
	Add(value []byte) error
	Put(key, value []byte) error
}

// importer turns files into records.
type importer struct {
	w       recordWriter
	key     string // field
	max     int    // bytes of a record
	skipBad int
	bar     *progress
	note    func(format string, args ...any)

	line int // that is being read
	bad  int // lines left out
}

// badLine is a line that is no record.
type badLine struct {
	file string
	line int
	err  error
}

func (e *badLine) Error() string { return fmt.Sprintf("%s:%d: %v", e.file, e.line, e.err) }

func (e *badLine) Unwrap() error { return e.err }

// file imports one file.
func (in *importer) file(ctx context.Context, item importItem, stdin io.Reader) error {
	text, done, err := item.open(ctx, stdin, in.bar.add)
	if err != nil {
		return err
	}
	defer done()
	var f format = plainLines{}
	if item.format == "ndjson" {
		f = newJSONLines(in.key)
	}
	lines := newLineReader(text, in.max)
	for {
		if lines.number%1024 == 0 && ctx.Err() != nil {
			return fmt.Errorf("%s: stopped after line %d; importing the file again would store these lines twice, but for those with a --key: %w", item.name, lines.number, ctx.Err())
		}
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var long *tooLong
		if err != nil && !errors.As(err, &long) {
			if ctx.Err() != nil {
				return fmt.Errorf("%s: stopped after line %d: %w", item.name, lines.number-1, err)
			}
			return fmt.Errorf("%s: cannot be read beyond line %d: %w", item.name, lines.number-1, err)
		}
		if err == nil {
			in.line = lines.number
			err = in.record(f, line)
		}
		if err == nil {
			continue
		}
		if err := in.failed(&badLine{item.name, lines.number, err}); err != nil {
			return err
		}
	}
}

func (in *importer) record(f format, line []byte) error {
	r, err := f.parse(line)
	switch {
	case err != nil || r.blank:
		return err
	case r.keyed:
		return in.w.Put(r.key, r.value)
	default:
		return in.w.Add(r.value)
	}
}

// failed leaves a bad line out, if that is allowed still.
func (in *importer) failed(bad *badLine) error {
	var broken *pinion.WriteError
	if errors.As(bad.err, &broken) {
		return bad.err
	}
	if in.bad >= in.skipBad {
		return bad
	}
	in.bad++
	in.note("left out: %v", bad)
	return nil
}
