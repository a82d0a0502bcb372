package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

const (
	jobTimeout = 60 * time.Second
	noModule   = "none" // as MODULE
)

// runOptions are the flags of run.
type runOptions struct {
	space, reduce, combine, mode, sort, output string
	params                                     []string
	limit, attempts                            int
	onError                                    onErrorFlag
	parts                                      partFlags
	verbose, detach                            bool
	id                                         string

	local  localFlag
	golden string
	update bool
}

func (s *session) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run MODULE [FUNCTION]",
		Short: "Run a module's function over all records of a space",
		Long: `Run a module's function over all records of a space, reduce what it emits, and print the rows.

MODULE is a name in the catalogue (its newest version), name@version, a digest, or a file, which is uploaded:
  mine.wasm   a module as it is
  map.go, DIR a program that the installed Go builds: a reactor if it exports a function with go:wasmexport,
              else a WASI command; without a go.mod, package guest is this program's own copy
  DIR         without Go files: sh build.sh is run in it, which writes guest.wasm there, as in the projects
              of module init; without that, its .wat file
  mine.wat    what wat2wasm of WABT assembles
Always there: wordcount splits values at white space and emits each word with a 1; grep emits the records whose
value contains the text of -p pattern=TEXT (plain text, no expression). "none" passes the records through, to
be reduced as they are.
FUNCTION is the module's export to map with (default map).

--buckets and --key map a part of the space: a job goes only to the storages that own it.

The job sees the records as they are at one log position, each exactly once. The last line on stderr says so:
  256/256 buckets on 3 storages, each exactly once, at log position 48113; 3.2 M records, 268 MB, 2.1 s, 1 attempt

With --local the job runs over the records of files instead, here and without a server, by the code and
within the limits of a storage. The files are read into memory, as import reads them (--local-format, --local-key),
in 16 buckets; a key that is assigned is #FILE.LINE.BUCKET. The buckets are mapped twice, the second time backwards,
each in an instance of its own and in smaller batches: if the answers differ, the guest carries state along, and
the job fails. A failure names the line. --golden compares the rows with a file of tsv, prints how they differ,
and then exits with 1.

Outputs:
  table   columns, for people; the default on a terminal
  tsv     key TAB value; the default elsewhere
  ndjson  {"key": .., "value": ..}, one a line
  json    one object {"rows": [..], "stats": {..}}
In tsv and table, backslash, tab and line breaks are \\ \t \n \r, control characters and bytes that are not
UTF-8 are \xHH; table also has \u{H..} for characters that do not print. In JSON, what is not UTF-8 is
{"base64": ".."}. A key that the log assigned is #sequence.index.bucket; a key of yours that looks like one
has a backslash before it in tsv and table. Integers keep all of their 64 bits.

With --on-error skip:N the job goes on without the records at which the function fails, as long as they are at
most N: of such a record nothing counts, and each is named on stderr with bucket, number, key and reason. The
exit status is 0 then.

Ctrl-C cancels the job. With --detach the job is stored before the command ends: it goes on without it, also when
a router dies, and its result is kept (submit jobs, submit job). Its --timeout counts from when it begins to run.`,
		Example: "  submit run wordcount --reduce sum --sort -value --limit 20\n" +
			"  submit run grep -p pattern=ERROR --space logs --output tsv\n" +
			"  submit run wordcount --reduce sum --key page/17 --key page/18\n" +
			"  submit run ./mine.wasm --reduce module --output ndjson > rows.ndjson\n" +
			"  submit run ./map.go --reduce sum --local input.txt --golden expected.tsv\n" +
			"  submit run wordcount --reduce sum --timeout 30m --detach",
		Args: o.local.wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, files := o.local.split(args)
			return s.run(cmd.Context(), o, args, files)
		},
	}
	f := cmd.Flags()
	o.local.register(f)
	o.parts.register(f)
	f.StringVar(&o.golden, "golden", "", "file of rows as tsv has them, which the answer must be")
	f.BoolVar(&o.update, "update", false, "write the answer to the --golden file")
	f.Var(&o.onError, "on-error", "about a record at which the function fails: fail the job, or skip up to N of them (default fail; N 100)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "tell the work of the guests, too")
	f.BoolVar(&o.detach, "detach", false, "store the job for any router to run, print its id, and do not wait for it")
	f.StringVar(&o.id, "id", "", "id of the job, to repeat the command with: a job of it is joined, not run again (default: one is made)")
	f.StringVar(&o.space, "space", "", "space to read (default \"default\")")
	f.StringVar(&o.reduce, "reduce", "", "sum, count, min, max, none, module or module:NAME (default: the module's own)")
	f.StringVar(&o.combine, "combine", "", "function of the module that combines each storage's output")
	f.StringArrayVarP(&o.params, "param", "p", nil, "name=value for the module; may be given several times")
	f.StringVar(&o.mode, "mode", "hold", "hold: no bucket moves until it is mapped; snapshot: they may move, and the answer is the same")
	f.StringVar(&o.sort, "sort", "key", "key, -key, value, -value or none")
	f.IntVar(&o.limit, "limit", 0, "rows at the most (default all)")
	f.IntVar(&o.attempts, "attempts", 0, "how often the map may be begun; tries that fail before it, as while a storage is away, do not count (default 10)")
	f.StringVar(&o.output, "output", "", "table, tsv, ndjson or json")
	return cmd
}

// job checks the flags and makes a job of them, without its module's file.
func (o runOptions) job(args []string) (pinion.Job, error) {
	job := pinion.Job{
		Module: args[0], Combine: o.combine, Reduce: o.reduce, Space: o.space, Mode: o.mode, Sort: o.sort,
		Limit: o.limit, Attempts: o.attempts, OnError: o.onError.mode, MaxSkip: o.onError.max, ID: o.id,
	}
	if len(args) > 1 {
		job.Function = args[1]
	}
	if job.Module == noModule {
		job.Module = ""
	}
	for _, check := range []error{
		cli.OneOf("mode", o.mode, api.ModeHold, api.ModeSnapshot),
		cli.OneOf("sort", o.sort, "key", "-key", "value", "-value", "none"),
	} {
		if check != nil {
			return job, check
		}
	}
	if o.output != "" {
		if err := cli.OneOf("output", o.output, outputs...); err != nil {
			return job, err
		}
	}
	if o.update && o.golden == "" {
		return job, cli.Usagef("--update writes the file of --golden, which is not given")
	}
	if o.golden != "" && o.output != "" {
		return job, cli.Usagef("--golden compares the rows and prints none: --output has no meaning with it")
	}
	if err := o.checkDetached(); err != nil {
		return job, err
	}
	if o.limit < 0 || o.attempts < 0 {
		return job, cli.Usagef("--limit and --attempts may not be negative")
	}
	if job.Module == "" && (job.Function != "" || job.Combine != "" || len(o.params) > 0) {
		return job, cli.Usagef("MODULE %s has no functions: FUNCTION, --combine and -p need a module", noModule)
	}
	if o.local.given && o.parts.given() {
		return job, cli.Usagef("--buckets, --key and --bucket-param name parts of a cluster's space; they have no meaning with --local")
	}
	if err := o.parts.apply(&job); err != nil {
		return job, err
	}
	var err error
	job.Params, err = params(o.params)
	return job, err
}

func params(pairs []string) (map[string][]byte, error) {
	values := map[string][]byte{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, cli.Usagef("-p %q is not name=value", pair)
		}
		if _, twice := values[name]; twice {
			return nil, cli.Usagef("-p %s is given twice", name)
		}
		values[name] = []byte(value)
	}
	return values, nil
}

func (s *session) run(ctx context.Context, o runOptions, args, files []string) error {
	if err := s.options.Settle(); err != nil {
		return err
	}
	job, err := o.job(args)
	if err != nil {
		return err
	}
	if job.Timeout, err = s.options.Timeout(jobTimeout); err != nil {
		return err
	}
	items, err := o.local.items(files)
	if err != nil {
		return err
	}
	var file *moduleFile
	if isFile(job.Module) {
		if file, err = s.readModule(ctx, job.Module); err != nil {
			return s.printFaults(job.Module, err)
		}
	}
	if o.local.given {
		if file != nil {
			job.Module = file.name
		}
		return nameHint(args, file, s.runLocal(ctx, job, file, items, o))
	}
	client, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if file != nil {
		if job.Module, err = client.UploadModule(ctx, file.bytes); err != nil {
			return err
		}
		job.Label = file.name
	}
	if o.detach {
		return nameHint(args, file, s.submitJob(ctx, client, job, o.output))
	}
	return nameHint(args, file, s.runJob(ctx, client, job, s.rowWriter(o), o.verbose))
}

// nameHint helps a user who named a module or function that is not there, though something close to it is.
func nameHint(args []string, file *moduleFile, err error) error {
	module := args[0]
	if file != nil && len(args) == 1 && api.CodeOf(err) == api.CodeUnknownFunction && !slices.Contains(file.manifest.Functions, "map") {
		names := file.manifest.Functions
		return api.AsError(err).WithHint("it has %s; name it: submit run %s %s",
			strings.Join(names[:min(len(names), 20)], ", "), shellWord(module), shellWord(names[0]))
	}
	if api.CodeOf(err) != api.CodeUnknownModule {
		return err
	}
	if info, statErr := os.Stat(module); statErr != nil || !info.IsDir() {
		return err
	}
	return api.AsError(err).WithHint("there is a folder of that name: to run the program in it, write ./%s", module)
}

// rowWriter makes what prints the rows, or compares them.
func (s *session) rowWriter(o runOptions) rowWriter {
	switch {
	case o.golden != "":
		return newGoldenRows(s, o.golden, o.update)
	case o.output != "":
		return newRowWriter(o.output, s.stdout)
	case isTerminal(s.stdout):
		return newRowWriter("table", s.stdout)
	}
	return newRowWriter("tsv", s.stdout)
}

// runJob runs a job, prints its rows, and proves on stderr what they cover.
func (s *session) runJob(ctx context.Context, client *pinion.Client, job pinion.Job, out rowWriter, verbose bool) error {
	settings, err := client.Settings(ctx)
	if err != nil {
		return err
	}
	bar := newProgress(s.stderr, "mapping", int64(settings.Buckets), false)
	if bar.bar != nil {
		job.Progress = func(p api.JobProgress) { bar.set(p.Buckets) }
	}
	job.Proof = true
	result, err := client.Run(ctx, job)
	bar.end()
	if err != nil {
		s.printFailure(err, nil)
		return err
	}
	if err := result.CheckCoverage(settings.Buckets); err != nil {
		return err
	}
	if err := printRows(ctx, result, out, 0); err != nil {
		return err
	}
	s.noteUnreduced(job, result.Stats)
	s.noteKeys(job, result.Stats)
	s.noteCover(result, settings.Buckets, verbose)
	return nil
}

// printRows prints the rows of a job, at most some if limit is not 0.
func printRows(ctx context.Context, result *pinion.Result, out rowWriter, limit int) error {
	printed := 0
	for row, err := range result.Rows(ctx) {
		if err == nil {
			err = out.write(row)
		}
		if err != nil {
			return err
		}
		if printed++; printed == limit {
			break
		}
	}
	stats := result.Stats
	stats.Pinned = nil // was checked; thousands of numbers otherwise
	return out.close(stats)
}

// noteCover tells on stderr what the rows of a job cover.
func (s *session) noteCover(result *pinion.Result, n int, verbose bool) {
	s.noteSkipped(result.Stats)
	if verbose {
		s.noteFuel(result.Stats)
	}
	s.printProof(result.Stats, len(result.Wanted(n)))
}

// noteKeys tells a user of keys that have no record.
func (s *session) noteKeys(job pinion.Job, stats api.JobStats) {
	keys := map[string]bool{}
	for _, key := range job.Keys {
		keys[string(key)] = true
	}
	if uint64(len(keys)) > stats.Records {
		s.note("%d of %s have a record", stats.Records, exactly(uint64(len(keys)), "key"))
	}
}

// noteUnreduced tells a user who named no reduce what the rows are then.
func (s *session) noteUnreduced(job pinion.Job, stats api.JobStats) {
	if job.Module != "" && job.Reduce == "" && stats.Reduce == "none" && stats.Rows > 0 {
		s.note("no reduce was named: these are the pairs as the function emitted them (--reduce sum, count, min, max, ...)")
	}
}

// printFailure writes what a failed guest left behind; the message itself follows. Lines of stderr that were shown
// when the guest wrote them are not repeated.
func (s *session) printFailure(err error, shown *guestLines) {
	details := maps.Clone(api.AsError(err).Details)
	if shown.covers(details["stderr"]) {
		delete(details, "stderr")
	}
	for _, name := range []string{"stderr", "stack"} {
		if text := strings.TrimSpace(details[name]); text != "" {
			s.note("%s of the guest:\n  %s", name, strings.ReplaceAll(string(appendEscapedLines(text)), "\n", "\n  "))
		}
	}
}

// appendEscapedLines is a text of several lines without what a terminal would obey.
func appendEscapedLines(text string) []byte {
	var out []byte
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			out = append(out, '\n')
		}
		out = appendEscaped(out, []byte(strings.ReplaceAll(line, "\t", "    ")), printable)
	}
	return out
}

// printCounters writes the job's counters.
func (s *session) printCounters(st api.JobStats) {
	var counters []string
	for _, name := range slices.Sorted(maps.Keys(st.Counters)) {
		text := appendEscaped(nil, []byte(name), printable)
		counters = append(counters, fmt.Sprintf("%s=%d", text, st.Counters[name]))
	}
	if len(counters) > 0 {
		s.note("counters: %s", strings.Join(counters, " "))
	}
}

// printProof writes the job's counters, and the line that says what the rows cover.
func (s *session) printProof(st api.JobStats, n int) {
	s.printCounters(st)
	s.note("%d/%d buckets on %s, each exactly once, at log position %d; %s, %s, %s, %s%s",
		st.Buckets, n, count(uint64(st.Storages), "storage"), st.Cut, count(st.Records, "record"),
		byteCount(st.Bytes), seconds(time.Duration(st.Millis)*time.Millisecond), count(uint64(st.Attempts), "attempt"), skippedText(st))
}
