package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/pinion-mr/pinion"
)

// connection is what says which cluster to use: flags, then PINION_* in the environment, then the file.
type connection struct {
	flags  *pflag.FlagSet
	config string
	values map[string]*string // by name of the flag
}

// connectionFlags are the common flags but --config.
var connectionFlags = []struct{ name, fallback, usage string }{
	{"server", "nats://127.0.0.1:4222", "address of the NATS server, several with commas"},
	{"cluster", pinion.DefaultCluster, "name of the cluster"},
	{"creds", "", "file with a NATS user's credentials"},
	{"tls-ca", "", "file with the certificate authorities to trust"},
	{"tls-cert", "", "file with this program's certificate"},
	{"tls-key", "", "file with this program's key"},
	{"timeout", "", "how long it may take, as 90s or 5m (run and export: of the job, default 60s)"},
}

// variable is the environment's name of a flag.
func variable(flag string) string {
	return "PINION_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (c *connection) register(flags *pflag.FlagSet) {
	c.flags, c.values = flags, map[string]*string{}
	for _, f := range connectionFlags {
		usage := f.usage + " (env " + variable(f.name) + ")"
		if f.fallback != "" {
			usage += " (default " + f.fallback + ")"
		}
		c.values[f.name] = flags.String(f.name, "", usage)
	}
	flags.StringVar(&c.config, "config", "", "YAML file with any of these flags as keys (env "+variable("config")+")")
}

// settle fills in what no flag gave.
func (c *connection) settle() error {
	file, err := readConfig(cmp.Or(c.config, os.Getenv(variable("config"))))
	if err != nil {
		return err
	}
	for _, f := range connectionFlags {
		if !c.flags.Changed(f.name) {
			*c.values[f.name] = cmp.Or(os.Getenv(variable(f.name)), file[f.name], f.fallback)
		}
	}
	return nil
}

func readConfig(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("--config: %v", err)
	}
	var values map[string]string
	if err := yaml.Unmarshal(text, &values); err != nil && !errors.Is(err, io.EOF) {
		return nil, usagef("--config: %s: %v", path, err)
	}
	var names []string
	for _, f := range connectionFlags {
		names = append(names, f.name)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := oneOf("config", key, names...); err != nil {
			return nil, usagef("%s: %v", path, err)
		}
	}
	return values, nil
}

// timeout is the value of --timeout, or fallback.
func (c *connection) timeout(fallback time.Duration) (time.Duration, error) {
	text := *c.values["timeout"]
	if text == "" {
		return fallback, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond {
		return 0, usagef("--timeout %q is not a time of at least 1ms, as 90s or 5m", text)
	}
	return d, nil
}

// connect opens the client and bounds the whole command: by --timeout, else by fallback if it is not 0.
// Call done at the end.
func (s *session) connect(ctx context.Context, fallback time.Duration) (c *pinion.Client, bounded context.Context, done func(), err error) {
	limit, err := s.options.timeout(fallback)
	if err != nil {
		return nil, nil, nil, err
	}
	cancel := func() {}
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	client, err := s.dial(ctx)
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	return client, ctx, func() { client.Close(); cancel() }, nil
}

func (s *session) dial(ctx context.Context) (*pinion.Client, error) {
	v := s.options.values
	client, err := pinion.Connect(ctx, pinion.Config{
		Server: *v["server"], Cluster: *v["cluster"], Name: "submit", Creds: *v["creds"],
		TLSCA: *v["tls-ca"], TLSCert: *v["tls-cert"], TLSKey: *v["tls-key"],
	})
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("stopped while connecting to %s: %w", *v["server"], err)
	}
	return client, err
}
