package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

// run writes the files into the folder that is named, and removes those of messages that are gone.
func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: schema FOLDER")
	}
	files, err := schemas("api")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(args[0], "*.json"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := files[filepath.Base(path)]; !ok {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, file := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), file, 0o644); err != nil {
			return err
		}
	}
	return nil
}
