package main

import (
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/guest"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/sdk"
)

// defaultName is the name of the project in the templates.
const defaultName = "words"

// template is a project that module init can make.
type template struct {
	lang  string
	sdk   string // its SDK file in sdk.Files; Go has a package instead
	needs string
}

// templates lists the projects by language.
func templates() []template {
	return []template{
		{lang: "go", needs: "Go 1.24 or later"},
		{lang: "c", sdk: "c/pmr.h", needs: "clang and lld (Debian: clang lld)"},
		{lang: "rust", sdk: "rust/pmr.rs", needs: "rustc with the target wasm32-unknown-unknown (Debian: rustc lld libstd-rust-dev-wasm32)"},
		{lang: "assemblyscript", sdk: "assemblyscript/pmr.ts", needs: "asc (npm ci in DIR, or npm install -g assemblyscript)"},
		{lang: "wat", needs: "wat2wasm (Debian: wabt)"},
	}
}

func (s *session) moduleInitCommand() *cobra.Command {
	var lang string
	var names []string
	for _, t := range templates() {
		names = append(names, t.lang)
	}
	var needs strings.Builder
	for _, t := range templates() {
		fmt.Fprintf(&needs, "\n  %-15s %s", t.lang, t.needs)
	}
	cmd := &cobra.Command{
		Use:   "init --lang LANGUAGE DIR",
		Short: "Write a module's project to begin with",
		Long: "Write a project into DIR, which must not exist or be empty: a word count that builds and passes its own\n" +
			"test as it is, with its SDK. Nothing is fetched from anywhere. To build it needs\n" + needs.String(),
		Example: "  submit module init --lang go words\n" +
			"  submit module init --lang c ./top-hosts",
		Args: cli.WantArgs(1, 1, "a DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			if lang == "" {
				return cli.Usagef("init needs --lang, one of %s", strings.Join(names, ", "))
			}
			if err := cli.OneOf("lang", lang, names...); err != nil {
				return err
			}
			all := templates()
			return s.initModule(all[slices.IndexFunc(all, func(t template) bool { return t.lang == lang })], args[0])
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "", strings.Join(names, ", "))
	return cmd
}

func (s *session) initModule(t template, dir string) error {
	files, err := t.files(projectName(dir))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return fmt.Errorf("%q is not empty: it holds %q; name a folder that does not exist", dir, entries[0].Name())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%q cannot be filled: %w", dir, err)
	}
	for _, f := range files {
		to := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.text, f.mode()); err != nil {
			return err
		}
	}
	s.note("wrote %s to %q; next:", exactly(uint64(len(files)), "file"), dir)
	for _, line := range next(dir) {
		if _, err := fmt.Fprintln(s.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// next are the commands to type after init: to test the module, and to run it on a cluster.
func next(dir string) []string {
	return []string{
		"cd " + shellWord(dir),
		"submit run . --reduce sum --local input.txt --golden expected.tsv",
		"submit import input.txt && submit run . --reduce sum",
	}
}

// shellWord is a word as a shell takes it.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+,:@%", r))
	}
	if strings.HasPrefix(word, "-") {
		word = "./" + word
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// projectFile is a file of a project.
type projectFile struct {
	name string // with slashes, below the project's folder
	text []byte
}

func (f projectFile) mode() fs.FileMode {
	if path.Ext(f.name) == ".sh" {
		return 0o755
	}
	return 0o644
}

// projectRule is what a folder's name must look like to be the path of a Go module.
var projectRule = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// projectName is the name of a project in a folder: the folder's, if that may be the path of a Go module.
func projectName(dir string) string {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return defaultName
	}
	name := filepath.Base(whole)
	reserved := []string{"cmd", "std", "main", "internal", "vendor"} // to the go tool
	if !projectRule.MatchString(name) || !token.IsIdentifier(name) || slices.Contains(reserved, name) {
		return defaultName
	}
	return name
}

// renamed is a file of the Go template for a project of another name. The function keeps its own.
func renamed(text []byte, project string) []byte {
	return []byte(strings.NewReplacer(
		"module "+defaultName+"\n", "module "+project+"\n",
		`"`+defaultName+`/guest"`, `"`+project+`/guest"`,
		"Command "+defaultName+" ", "Command "+project+" ",
		"# "+defaultName+"\n", "# "+project+"\n",
		"--name "+defaultName+" ", "--name "+project+" ",
	).Replace(string(text)))
}

// files are those of the template, for a project of a name, and its SDK.
func (t template) files(project string) ([]projectFile, error) {
	var files []projectFile
	root := "templates/" + t.lang
	err := fs.WalkDir(sdk.Files, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sdk.Files.ReadFile(name)
		if t.lang == "go" {
			text = renamed(text, project)
		}
		files = append(files, projectFile{strings.TrimSuffix(strings.TrimPrefix(name, root+"/"), ".tmpl"), text})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the template for %s: %w", t.lang, err)
	}
	if t.sdk != "" {
		text, err := sdk.Files.ReadFile(t.sdk)
		if err != nil {
			return nil, fmt.Errorf("the SDK for %s: %w", t.lang, err)
		}
		files = append(files, projectFile{path.Base(t.sdk), text})
	}
	if t.lang != "go" {
		return files, nil
	}
	for _, name := range guest.Files() {
		text, err := guest.Source.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("the SDK for Go: %w", err)
		}
		files = append(files, projectFile{"guest/" + name, text})
	}
	return files, nil
}
