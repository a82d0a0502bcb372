package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSchemasAreCurrent compares docs/schema with what the messages are now.
func TestSchemasAreCurrent(t *testing.T) {
	files, err := schemas(filepath.Join("..", "..", "api"))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("..", "..", "docs", "schema")
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/schema/%s is not what package api says: go run ./internal/schema docs/schema (%v)", name, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(there) != len(files) {
		t.Errorf("docs/schema has %d files, package api has %d messages: go run ./internal/schema docs/schema (%v)", len(there), len(files), err)
	}
}

// TestSchemasKnowTheGoldenMessages: the fields of the messages as they are written are those of the schemas.
func TestSchemasKnowTheGoldenMessages(t *testing.T) {
	files, err := schemas(filepath.Join("..", "..", "api"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for name, file := range files {
		golden, err := os.ReadFile(filepath.Join("..", "..", "api", "testdata", strings.TrimSuffix(name, ".json")+".golden"))
		if err != nil {
			continue // it is a part of others
		}
		var s struct{ Properties map[string]any }
		var message map[string]any
		line, _, _ := bytes.Cut(golden, []byte("\n"))
		if err := errors.Join(json.Unmarshal(file, &s), json.Unmarshal(line, &message)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(message)); !slices.Equal(got, want) {
			t.Errorf("%s has the fields %v, the message %v", name, got, want)
		}
		seen++
	}
	if seen < 40 {
		t.Errorf("only %d messages were compared", seen)
	}
}

// TestJobRequestSchema looks at one message: kinds, bounds, references and comments.
func TestJobRequestSchema(t *testing.T) {
	files, err := schemas(filepath.Join("..", "..", "api"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Properties map[string]struct {
			Type        any
			Description string
			Items       struct {
				Ref     string `json:"$ref"`
				Maximum int
			}
		}
	}
	if err := json.Unmarshal(files["JobRequest.json"], &s); err != nil {
		t.Fatal(err)
	}
	p := s.Properties
	if p["module"].Type != "string" || p["timeout_ms"].Type != "integer" || p["proof"].Type != "boolean" ||
		p["buckets"].Items.Maximum != 65_535 || p["bucket_params"].Items.Ref != "BucketParams.json" || p["limit"].Description == "" {
		t.Errorf("%s", files["JobRequest.json"])
	}
	if !bytes.Contains(files["Error.json"], []byte(`"GUEST_FAILED"`)) {
		t.Errorf("the codes are missing: %s", files["Error.json"])
	}
}
