package pmr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Sight is what a mover sees of the cluster: the table, verified to the log's end as it was when the mover looked, and
// after it the storages that are alive and what is locked.
type Sight struct {
	Table          *buckets.View
	Alive          []string // storages that have an entry among the members
	LockedBuckets  []uint16
	LockedStorages []string
}

// sift takes out of what is going what has arrived, and what does not fit any more.
func (m *Mover) sift(s Sight) {
	m.going = slices.DeleteFunc(slices.Clone(m.going), func(b uint16) bool {
		owner := s.Table.Owner(buckets.ID(b)).Storage
		switch {
		case owner == m.order.Dst:
			m.moved = true
		case owner != m.order.Src && owner == "":
			m.leave("bucket %d has no owner", b)
		case owner != m.order.Src:
			m.leave("bucket %d belongs to %s", b, owner)
		case m.order.NeedsGates() && slices.Contains(s.LockedBuckets, b):
			m.leave("bucket %d is locked", b)
		default:
			return false
		}
		return true
	})
}

func (m *Mover) leave(format string, args ...any) {
	m.left = append(m.left, fmt.Sprintf(format, args...))
}

// leftOut says what was left out; nil if nothing was.
func (m *Mover) leftOut() *api.Error {
	if len(m.left) == 0 {
		return nil
	}
	return api.Errorf(api.CodeBusy, "the order did not fit any more: %s", strings.Join(m.left, ", "))
}

// unfit says why nothing of the order can be done as things are.
func (m *Mover) unfit(s Sight) *api.Error {
	o := m.order
	switch srcLives := slices.Contains(s.Alive, o.Src); {
	case !slices.Contains(s.Alive, o.Dst):
		return api.Errorf(api.CodeUnavailable, "storage %s is not there", o.Dst).WithHint("start it again, or order the move to another")
	case o.Takeover && srcLives:
		return api.Errorf(api.CodeBusy, "storage %s is back", o.Src)
	case !o.NeedsGates():
		return nil
	case !srcLives:
		return api.Errorf(api.CodeUnavailable, "storage %s is not there", o.Src).WithHint("if it stays away its buckets are taken over")
	}
	for _, storage := range []string{o.Src, o.Dst} {
		if slices.Contains(s.LockedStorages, storage) {
			return api.Errorf(api.CodeBusy, "storage %s is locked", storage).WithHint("engine unlock storage %s", storage)
		}
	}
	return nil
}

// waitsFor says in words what the mover waits for.
func (m *Mover) waitsFor() string {
	switch m.step {
	case MoveReceives:
		return fmt.Sprintf("%s to receive %s", m.order.Dst, buckets.Ranges(ids(m.going)))
	case MoveGates:
		g := m.gates[m.asking]
		if g.fence != 0 {
			g = m.gates[1]
		}
		return fmt.Sprintf("the gate of %s, where %d map-reduces hold buckets", g.storage, m.running)
	case MoveActivates:
		return fmt.Sprintf("%s to activate %s", m.order.Dst, buckets.Ranges(ids(m.going)))
	case MoveLooks, MoveChecks, MoveConcludes:
		return "the log"
	case MoveEnded:
	}
	return ""
}

func ids(list []uint16) []buckets.ID {
	out := make([]buckets.ID, len(list))
	for i, b := range list {
		out[i] = buckets.ID(b)
	}
	return out
}
