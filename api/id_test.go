package api

import (
	"strings"
	"testing"
)

func TestCheckID(t *testing.T) {
	for id, ok := range map[string]bool{
		"s1": true, "A_b-9": true, strings.Repeat("x", 80): true,
		"": false, strings.Repeat("x", 81): false, "a b": false, "a.b": false, "*": false, ">": false, "ä": false, "a\n": false,
	} {
		if err := CheckID("a storage", id); (err == nil) != ok {
			t.Errorf("CheckID(%.20q) = %v", id, err)
		}
	}
}
