package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pinion-mr/pinion/internal/cli"
)

// localFlag is --local FILE...: it takes the argument after it and all that follow. It is a pflag.Value.
type localFlag struct {
	flags       *pflag.FlagSet
	given       bool
	before      int // arguments before it: MODULE and FUNCTION
	files       []string
	format, key string
}

// register adds the flag, and those that say how the files are read.
func (l *localFlag) register(flags *pflag.FlagSet) {
	l.flags = flags
	flags.Var(l, "local", "run over these files, here and without a server; - is stdin. FILE... come last")
	flags.StringVar(&l.format, "local-format", "", "lines or ndjson, for all --local files (default: by their extension)")
	flags.StringVar(&l.key, "local-key", "", "field of each ndjson object that is the record's key")
}

// String is empty: the flag has no default.
func (l *localFlag) String() string { return "" }

// Type is what help shows as the flag's argument.
func (l *localFlag) Type() string { return "FILE..." }

// Set takes the first file. The arguments that were parsed before it are not files.
func (l *localFlag) Set(file string) error {
	if !l.given {
		l.given, l.before = true, l.flags.NArg()
	}
	l.files = append(l.files, file)
	return nil
}

// wantArgs checks the number of arguments.
func (l *localFlag) wantArgs(cmd *cobra.Command, args []string) error {
	if l.given {
		if l.before == 0 {
			return cli.Usagef("%s needs a MODULE before --local: all after it are files", cmd.Name())
		}
		args = args[:l.before]
	} else if len(args) > 1 && isInput(args[1]) {
		return cli.Usagef("%s is a file, not a FUNCTION: files come after --local", args[1])
	}
	return cli.WantArgs(1, 2, "a MODULE and perhaps a FUNCTION")(cmd, args)
}

// isInput tells a file that a user forgot to write --local before from a function's name.
func isInput(arg string) bool {
	if !strings.ContainsAny(arg, `./\`) {
		return false
	}
	info, err := os.Stat(arg)
	return err == nil && !info.IsDir()
}

// split tells MODULE and FUNCTION from the files.
func (l *localFlag) split(args []string) (rest, files []string) {
	if !l.given {
		return args, nil
	}
	return args[:l.before], append(l.files, args[l.before:]...)
}

// items checks the files.
func (l *localFlag) items(files []string) ([]importItem, error) {
	if !l.given {
		if l.format != "" || l.key != "" {
			return nil, cli.Usagef("--local-format and --local-key say how the files of --local are read, which is not given")
		}
		return nil, nil
	}
	return importOptions{format: l.format, key: l.key, output: "text"}.items(files)
}
