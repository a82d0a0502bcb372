package main

import (
	"fmt"
	"strconv"
	"time"
)

// decimal is n with a decimal prefix, as people read it: 268 M, 3.2 k; below a thousand all of it.
func decimal(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + " "
	}
	v := float64(n)
	for _, prefix := range []string{"k", "M", "G", "T", "P", "E"} {
		if v /= 1000; v < 999.5 || prefix == "E" {
			if v < 99.95 {
				return fmt.Sprintf("%.1f %s", v, prefix)
			}
			return fmt.Sprintf("%.0f %s", v, prefix)
		}
	}
	return ""
}

// byteCount is a number of bytes: 268 MB.
func byteCount(n uint64) string { return decimal(n) + "B" }

// count is a number of things: all of it below a million, else 3.2 M.
func count(n uint64, thing string) string {
	if n >= 1_000_000 {
		return decimal(n) + " " + thing + "s"
	}
	return exactly(n, thing)
}

// exactly is a number of things with all digits.
func exactly(n uint64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.FormatUint(n, 10) + " " + thing
}

// seconds is a duration: 2.1 s.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
