package api

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"sum", "count", "wordcount", "grep"}
	for word, want := range map[string]string{
		"wrdcount": "wordcount", "Count": "count", "gerp": "grep", "gr": "grep", "zzz": "", "": "", "summ": "sum",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
