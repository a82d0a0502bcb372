package pmr_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

func position(path string, line int) string { return fmt.Sprintf("%s:%d", path, line) }

func parseNumber(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseDuration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// parsePins reads "0-3@5,7@9": buckets and the generation of their ownership.
func parsePins(t *testing.T, s string) []api.BucketPin {
	var pins []api.BucketPin
	for part := range strings.SplitSeq(s, ",") {
		set, gen, _ := strings.Cut(part, "@")
		for _, b := range parseBuckets(t, set) {
			pin := api.BucketPin{Bucket: b}
			if gen != "" {
				pin.Generation = uint64(parseNumber(t, gen))
			}
			pins = append(pins, pin)
		}
	}
	return pins
}

// parseBuckets reads "0-3,7".
func parseBuckets(t *testing.T, s string) []uint16 {
	var bs []uint16
	if s == "" {
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		for b := parseNumber(t, from); b <= parseNumber(t, to); b++ {
			bs = append(bs, uint16(b))
		}
	}
	return bs
}

// parseError reads "CODE some message"; no error if it is empty.
func parseError(s string) *api.Error {
	if s == "" {
		return nil
	}
	code, message, _ := strings.Cut(s, " ")
	return api.Errorf(api.Code(code), "%s", message)
}

func showError(e *api.Error) string {
	s := string(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	for _, k := range slices.Sorted(maps.Keys(e.Details)) {
		s += fmt.Sprintf(" {%s: %s}", k, e.Details[k])
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func showBuckets(pins []api.BucketPin) string {
	bs := make([]buckets.ID, 0, len(pins))
	for _, p := range pins {
		bs = append(bs, buckets.ID(p.Bucket))
	}
	return buckets.Ranges(bs)
}

func showEffects(effects []pmr.Effect) string {
	var b strings.Builder
	for _, e := range effects {
		b.WriteString(showEffect(e) + "\n")
	}
	return b.String()
}

func showEffect(e pmr.Effect) string {
	switch e := e.(type) {
	case pmr.AppendCut:
		return fmt.Sprintf("AppendCut attempt=%d", e.Attempt)
	case pmr.SendPin:
		return showPin(e)
	case pmr.SendMap:
		return fmt.Sprintf("SendMap %s attempt=%d pmr=%s", e.Storage, e.Attempt, e.PMR)
	case pmr.SendRelease:
		return fmt.Sprintf("SendRelease %s pmr=%s", e.Storage, e.PMR)
	case pmr.Collect:
		return fmt.Sprintf("Collect attempt=%d", e.Attempt)
	case pmr.Finish:
		return showFinish(e)
	case pmr.Refuse:
		return fmt.Sprintf("Refuse %s %s", e.PMR, showError(e.Err))
	case pmr.Accept:
		return "Accept " + e.PMR
	case pmr.StartMap:
		return "StartMap " + e.PMR
	case pmr.StopMap:
		return "StopMap " + e.PMR
	case pmr.Report:
		return "Report " + e.PMR
	case pmr.Drop:
		return "Drop " + e.PMR
	case pmr.OpenGate:
		return "OpenGate " + e.Gate
	case pmr.CloseGate:
		return "CloseGate " + e.Gate
	case pmr.SetFence:
		return "SetFence"
	}
	return showMoverEffect(e)
}

// showPin leaves out what is as in a first attempt on all buckets.
func showPin(e pmr.SendPin) string {
	s := fmt.Sprintf("SendPin %s attempt=%d cut=%d ttl=%v", e.Storage, e.Attempt, e.Cut, e.TTL)
	if e.Age != e.Cut {
		s += fmt.Sprintf(" age=%d", e.Age)
	}
	if e.Buckets != nil {
		s += fmt.Sprintf(" buckets=%v", e.Buckets)
	}
	if e.Snapshot {
		s += " snapshot"
	}
	return s
}

func showFinish(f pmr.Finish) string {
	switch {
	case f.Err != nil && f.Proof != nil:
		return "Finish with an error and a proof, which is neither"
	case f.Err != nil:
		return "Finish " + showError(f.Err)
	case f.Proof == nil:
		return "Finish with nothing"
	}
	s := fmt.Sprintf("Finish done: cut=%d attempts=%d", f.Proof.Cut, f.Proof.Attempts)
	for _, p := range f.Proof.Pinned {
		s += fmt.Sprintf("; %s (%s) pinned %s as %s", p.Storage, p.Incarnation, showBuckets(p.Buckets), p.PMR)
	}
	return s
}
