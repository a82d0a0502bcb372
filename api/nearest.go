package api

import "strings"

// Nearest is the candidate that a mistyped word probably meant, for the hint of an [Error]: the one at most
// two edits away, or of which the word is the beginning; "" if there is none.
func Nearest(word string, candidates []string) string {
	best, found := 3, ""
	for _, c := range candidates {
		d := edits(strings.ToLower(word), strings.ToLower(c))
		if len(word) >= 2 && strings.HasPrefix(c, word) {
			d = min(d, 2)
		}
		if d < best && d < len(c) {
			best, found = d, c
		}
	}
	return found
}

// edits is the Levenshtein distance of two short words, byte by byte.
func edits(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
