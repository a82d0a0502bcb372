package cli

import (
	"cmp"
	"errors"
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

// Connection says which cluster to use: flags, then PINION_* in the environment, then the file.
type Connection struct {
	flags  *pflag.FlagSet
	more   *pflag.FlagSet // see Extend; may be nil
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
	{"timeout", "", "how long it may take, as 90s or 5m; of a job, its time (default 60s)"},
}

// variable is the environment's name of a flag.
func variable(flag string) string {
	return "PINION_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Register adds the common flags.
func (c *Connection) Register(flags *pflag.FlagSet) {
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

// EngineOnly are the flags that engine has and submit passes over in a config file that both read.
var EngineOnly = []string{
	"aggregation-memory", "aggregation-total", "collect-total", "compile-cpu", "compile-memory", "compile-timeout", "durable-queue", "guest-counters",
	"guest-fuel", "guest-log-lines", "guest-memory", "guest-output", "guest-table", "jobs", "jobs-queue", "longest-hold", "module-size",
}

// Extend has Settle fill in the flags of another set, too; their names are among [EngineOnly].
func (c *Connection) Extend(flags *pflag.FlagSet) {
	c.more = flags
	flags.VisitAll(func(f *pflag.Flag) { f.Usage += " (env " + variable(f.Name) + ")" })
}

// Settle fills in what no flag gave.
func (c *Connection) Settle() error {
	file, err := readConfig(cmp.Or(c.config, os.Getenv(variable("config"))))
	if err != nil {
		return err
	}
	for _, f := range connectionFlags {
		if !c.flags.Changed(f.name) {
			*c.values[f.name] = cmp.Or(os.Getenv(variable(f.name)), file[f.name], f.fallback)
		}
	}
	if c.more == nil {
		return nil
	}
	c.more.VisitAll(func(f *pflag.Flag) {
		value := cmp.Or(os.Getenv(variable(f.Name)), file[f.Name])
		if f.Changed || value == "" || err != nil {
			return
		}
		if wrong := f.Value.Set(value); wrong != nil {
			err = Usagef("%s from the environment (%s) or the config file: %v", f.Name, variable(f.Name), wrong)
		}
	})
	return err
}

func readConfig(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, Usagef("--config: %v", err)
	}
	var values map[string]string
	if err := yaml.Unmarshal(text, &values); err != nil && !errors.Is(err, io.EOF) {
		return nil, Usagef("--config: %s: %v", path, err)
	}
	var names []string
	for _, f := range connectionFlags {
		names = append(names, f.name)
	}
	names = append(names, EngineOnly...)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := OneOf("config", key, names...); err != nil {
			return nil, Usagef("%s: %v", path, err)
		}
	}
	return values, nil
}

// Value is what holds for one of the common flags.
func (c *Connection) Value(flag string) string { return *c.values[flag] }

// Timeout is the value of --timeout, or fallback.
func (c *Connection) Timeout(fallback time.Duration) (time.Duration, error) {
	text := *c.values["timeout"]
	if text == "" {
		return fallback, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond {
		return 0, Usagef("--timeout %q is not a time of at least 1ms, as 90s or 5m", text)
	}
	return d, nil
}
