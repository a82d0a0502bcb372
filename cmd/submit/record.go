package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/internal/cli"
)

// recordPatience bounds the commands of one record, and of the catalogue.
const recordPatience = 30 * time.Second

// largestValue bounds what put reads from stdin; no cluster takes larger records.
const largestValue = 64 << 20

const keyHelp = `

KEY is taken as it is, but #SEQUENCE.INDEX.BUCKET is the key that the log assigned to a record. For a key of
yours that looks like one, write a backslash before it: '\#1.2.3'.`

// recordOptions are the flags of put, get, delete and spaces.
type recordOptions struct{ space, output string }

func (o *recordOptions) register(cmd *cobra.Command, spaced bool) {
	if spaced {
		cmd.Flags().StringVar(&o.space, "space", "", "space of the record (default \"default\")")
	}
	cmd.Flags().StringVar(&o.output, "output", "text", "text, or json for one JSON object on stdout")
}

// prepare settles the common flags and checks the others.
func (s *session) prepare(output string) error {
	if err := s.options.Settle(); err != nil {
		return err
	}
	return cli.OneOf("output", output, "text", "json")
}

func (s *session) putCommand() *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:   "put KEY [VALUE|-]",
		Short: "Store one record",
		Long: "Store one record. Without VALUE, or with -, the value is read from stdin, all of it as it is.\n" +
			"When the command ends, the record is stored; stderr says at which log position." + keyHelp,
		Example: "  submit put greeting hello\n" +
			"  submit put --space pictures logo - < logo.png",
		Args: cli.WantArgs(1, 2, "a KEY and perhaps a VALUE"),
		RunE: func(cmd *cobra.Command, args []string) error { return s.put(cmd.Context(), o, args) },
	}
	o.register(cmd, true)
	return cmd
}

func (s *session) put(ctx context.Context, o recordOptions, args []string) error {
	if err := s.prepare(o.output); err != nil {
		return err
	}
	if _, assigned := parseAssigned(args[0]); assigned {
		return cli.Usagef("the key %s has the form of assigned keys, which only the log gives", args[0])
	}
	key := keyArgument(args[0])
	var value []byte
	if len(args) > 1 && args[1] != stdinName {
		value = []byte(args[1])
	} else {
		var err error
		if value, err = io.ReadAll(io.LimitReader(s.stdin, largestValue+1)); err != nil {
			return fmt.Errorf("read the value from stdin: %w", err)
		}
		if len(value) > largestValue {
			return api.Errorf(api.CodeRecordTooBig, "the value on stdin has more than %d bytes", largestValue)
		}
	}
	client, ctx, done, err := s.connect(ctx, recordPatience)
	if err != nil {
		return err
	}
	defer done()
	seq, err := client.Put(ctx, o.space, key, value)
	return s.written(o, "stored", seq, err)
}

// written reports a write.
func (s *session) written(o recordOptions, what string, seq uint64, err error) error {
	if err != nil {
		return err
	}
	if o.output == "json" {
		return s.printJSON(api.SeqReply{Seq: seq})
	}
	s.note("%s at log position %d", what, seq)
	return nil
}

func (s *session) getCommand() *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of one record",
		Long: "Print the value of one record, as it is; on a terminal a line feed follows. Every write that was\n" +
			"acknowledged before is seen." + keyHelp,
		Example: "  submit get greeting\n  submit get '#48113.0.17' --output json",
		Args:    cli.WantArgs(1, 1, "a KEY"),
		RunE:    func(cmd *cobra.Command, args []string) error { return s.get(cmd.Context(), o, args[0]) },
	}
	o.register(cmd, true)
	return cmd
}

func (s *session) get(ctx context.Context, o recordOptions, name string) error {
	key := keyArgument(name)
	var value []byte
	err := s.withClient(ctx, o.output, func(ctx context.Context, client *pinion.Client) (err error) {
		value, err = client.Get(ctx, o.space, key)
		return err
	})
	if err != nil {
		return err
	}
	if o.output == "json" {
		line, err := appendJSONRow(nil, api.Row{Key: key, Value: api.BytesValue(value)})
		if err != nil {
			return err
		}
		value = append(line, '\n')
	} else if isTerminal(s.stdout) {
		value = append(value, '\n')
	}
	_, err = s.stdout.Write(value)
	return err
}

func (s *session) deleteCommand() *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:     "delete KEY",
		Short:   "Remove one record",
		Long:    "Remove one record. That there is none is no error." + keyHelp,
		Example: "  submit delete greeting\n  submit delete --space logs '#48113.0.17'",
		Args:    cli.WantArgs(1, 1, "a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withClient(cmd.Context(), o.output, func(ctx context.Context, client *pinion.Client) error {
				seq, err := client.Delete(ctx, o.space, keyArgument(args[0]))
				return s.written(o, "deleted", seq, err)
			})
		},
	}
	o.register(cmd, true)
	return cmd
}

func (s *session) spacesCommand() *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:     "spaces",
		Short:   "List the spaces",
		Long:    "List the spaces that were created or hold records, by name, one a line.",
		Example: "  submit spaces",
		Args:    cli.WantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var spaces []string
			err := s.withClient(cmd.Context(), o.output, func(ctx context.Context, client *pinion.Client) (err error) {
				spaces, err = client.Spaces(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if o.output == "json" {
				return s.printJSON(api.SpacesReply{Spaces: spaces})
			}
			var failures []error
			for _, space := range spaces {
				_, err := fmt.Fprintln(s.stdout, space)
				failures = append(failures, err)
			}
			return errors.Join(failures...)
		},
	}
	o.register(cmd, false)
	return cmd
}

// keyArgument is the key that a KEY on the command line stands for.
func keyArgument(text string) []byte {
	if key, ok := parseAssigned(text); ok {
		return key
	}
	if plain, ok := strings.CutPrefix(text, `\`); ok {
		if _, ok := parseAssigned(plain); ok {
			return []byte(plain)
		}
	}
	return []byte(text)
}

// parseAssigned reads #sequence.index.bucket.
func parseAssigned(text string) ([]byte, bool) {
	if !strings.HasPrefix(text, "#") || len(text) > 40 {
		return nil, false
	}
	parts := strings.Split(text[1:], ".")
	if len(parts) != 3 {
		return nil, false
	}
	seq, err1 := strconv.ParseUint(parts[0], 10, 64)
	index, err2 := strconv.ParseUint(parts[1], 10, 32)
	bucket, err3 := strconv.ParseUint(parts[2], 10, 16)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, false
	}
	key := buckets.AppendAssigned(nil, seq, uint32(index), buckets.ID(bucket))
	return key, buckets.KeyText(key) == text // no sign, no leading zero
}
