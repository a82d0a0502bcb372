package cli

import (
	"slices"
	"strconv"
	"strings"
)

// ParseBuckets reads numbers of buckets and ranges of them, with commas: 3,7,20-29. They come back ascending, each
// once. The error is a [UsageError] that names the part at fault.
func ParseBuckets(list string) ([]uint16, error) {
	var all []uint16
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		from, err := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err != nil || err2 != nil || from > to {
			return nil, Usagef("%q is no bucket or range of buckets, as 3 or 20-29", part)
		}
		for b := from; b <= to; b++ {
			all = append(all, uint16(b))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
