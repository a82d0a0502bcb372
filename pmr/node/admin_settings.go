package node

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// tunable is a setting that can be changed while the cluster runs.
type tunable struct {
	name, about string
	get         func(t api.Topology) string
	set         func(t *api.Topology, value string) error // an empty value is the default
}

// The ranges of settings.
const (
	mostParallelMoves = 64
	mostThreshold     = 1000.0
	leastGrace        = time.Second
	mostGrace         = 7 * 24 * time.Hour
	leastBandwidth    = 64 << 10
	mostBandwidth     = 1 << 40
)

// tunables are all of them, by name.
func tunables() []tunable {
	return []tunable{
		{
			"gate_quota", "moves granted on a storage in a row while jobs wait, 0 to 10000",
			func(t api.Topology) string { return strconv.Itoa(quotas(t).Gates) },
			func(t *api.Topology, v string) error { return setQuota(&t.GateQuota, v) },
		},
		{
			"move_bandwidth", "bytes per second that a storage receives for moves, such as 50MiB; 0 is unlimited",
			func(t api.Topology) string { return strconv.FormatInt(t.MoveBandwidth, 10) },
			setBandwidth,
		},
		{
			"parallel_moves", "moves at the same time, 1 to 64",
			func(t api.Topology) string { return strconv.Itoa(parallelMoves(t)) },
			func(t *api.Topology, v string) error {
				n, err := number(v, 1, mostParallelMoves)
				t.ParallelMoves = n
				return err
			},
		},
		{
			"pin_quota", "pins of jobs granted on a storage in a row while a move waits, 0 to 10000",
			func(t api.Topology) string { return strconv.Itoa(quotas(t).Pins) },
			func(t *api.Topology, v string) error { return setQuota(&t.PinQuota, v) },
		},
		{
			"takeover_grace", "time without its member entry after which a storage's buckets go to others, 1s to 168h; with a NATS cluster keep it above 15s",
			func(t api.Topology) string { return takeoverGrace(t).String() },
			setGrace,
		},
		{
			"threshold", "percent of its share that a storage may have too much or too little before buckets move, 0 to 1000",
			func(t api.Topology) string { return strconv.FormatFloat(threshold(t), 'g', -1, 64) },
			setThreshold,
		},
	}
}

// settingsOf tells all tunables as they are.
func settingsOf(t api.Topology) []api.Setting {
	var list []api.Setting
	for _, s := range tunables() {
		list = append(list, api.Setting{Name: s.name, Value: s.get(t), Default: s.get(api.Topology{}), About: s.about})
	}
	return list
}

// setTunable changes one. Whether the quotas fit each other is for the caller to check, once all are set.
func setTunable(t *api.Topology, name, value string) error {
	var names []string
	for _, s := range tunables() {
		if names = append(names, s.name); s.name != name {
			continue
		}
		if err := s.set(t, strings.TrimSpace(value)); err != nil {
			return api.Errorf(api.CodeBadRequest, "%s cannot be %.40q: %v", name, value, err).WithHint("%s", s.about)
		}
		return nil
	}
	err := api.Errorf(api.CodeBadRequest, "there is no setting %.80q", name)
	if near := api.Nearest(name, names); near != "" {
		return err.WithHint("did you mean %s?", near)
	}
	return err.WithHint("there are: %s", strings.Join(names, ", "))
}

// number reads an integer of a range; none is 0.
func number(text string, low, high int) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("it must be a whole number from %d to %d", low, high)
	}
	return n, nil
}

func setQuota(quota **int, text string) error {
	*quota = nil
	if text == "" {
		return nil
	}
	n, err := number(text, 0, maxQuota)
	if err != nil {
		return err
	}
	*quota = &n
	return nil
}

func setThreshold(t *api.Topology, text string) error {
	t.Threshold = nil
	if text == "" {
		return nil
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > mostThreshold {
		return fmt.Errorf("it must be a number from 0 to %v", mostThreshold)
	}
	t.Threshold = &v
	return nil
}

func setGrace(t *api.Topology, text string) error {
	t.TakeoverGraceMS = 0
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < leastGrace || d > mostGrace {
		return fmt.Errorf("it must be a time such as 20s or 5m, from %s to %s", leastGrace, mostGrace)
	}
	t.TakeoverGraceMS = d.Milliseconds()
	return nil
}

func setBandwidth(t *api.Topology, text string) error {
	t.MoveBandwidth = 0
	if text == "" {
		return nil
	}
	digits, unit := text, int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = rest, u.bytes
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 0 || n > mostBandwidth/unit || n > 0 && n*unit < leastBandwidth {
		return fmt.Errorf("it must be 0 or a size such as 50MiB, from %d to %d bytes", leastBandwidth, int64(mostBandwidth))
	}
	t.MoveBandwidth = n * unit
	return nil
}

// setWeight gives a storage a weight.
func setWeight(t *api.Topology, storage string, w float64) error {
	if math.IsNaN(w) || w < 0 || w > mostWeight {
		return api.Errorf(api.CodeBadRequest, "the weight of storage %s cannot be %v; it must be 0 to %g", storage, w, mostWeight).
			WithHint("weights count relative to each other: 1 is usual, 2 takes twice as many buckets, 0 none")
	}
	if t.Weights == nil {
		t.Weights = map[string]float64{}
	}
	t.Weights[storage] = w
	return nil
}

const mostWeight = 1e9

// lock adds to a sorted list, or takes away.
func lock[T uint16 | string](list, add, remove []T) []T {
	list = slices.Compact(slices.Sorted(slices.Values(slices.Concat(list, add))))
	return slices.DeleteFunc(list, func(v T) bool { return slices.Contains(remove, v) })
}
