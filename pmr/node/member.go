package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// membership keeps a node's entry among the members: created with a time to live and renewed, so that it
// vanishes with the node.
type membership struct {
	kv     KV
	key    string
	self   api.Member
	ttl    time.Duration
	logger *slog.Logger
	// replace has the id become this folder's at the next entry, whosever it was.
	replace bool
	// lapsed, if it is set, is called when the entry is gone, before it is made anew and others count on it again.
	lapsed func()

	mu       sync.Mutex
	revision uint64
	renewed  time.Time // monotonic; zero while it is not a member
}

func newMembership(kv KV, prefix string, self api.Member, logger *slog.Logger) *membership {
	return &membership{kv: kv, key: prefix + self.ID, self: self, ttl: DefaultMemberTTL, logger: logger}
}

// enter makes this process a member. An id belongs to the folder that had it first, for good: another folder is refused
// with NAME_TAKEN, also while the first one does not run or is only cut off.
func (m *membership) enter(ctx context.Context) error {
	revision, err := m.checkIdentity(ctx)
	if err != nil {
		return err
	}
	if err := m.acquire(ctx); err != nil {
		return err
	}
	if err := m.claimIdentity(ctx, revision); err != nil {
		m.leave(ctx)
		return err
	}
	m.replace = false // once: who replaces this one may come later
	return nil
}

// identityKey is the key of the identity; empty if this process has no folder that outlives it.
func (m *membership) identityKey() string {
	if m.self.Folder == "" {
		return ""
	}
	return prefixIdentity + m.self.Role + "." + m.self.ID
}

// checkIdentity fails if the id is another folder's. It returns the revision to claim it at.
func (m *membership) checkIdentity(ctx context.Context) (revision uint64, err error) {
	if m.identityKey() == "" {
		return 0, nil
	}
	e, err := m.kv.Get(ctx, m.identityKey())
	if err != nil || e.Revision == 0 {
		return 0, err
	}
	var found api.Identity
	if err := api.Decode(e.Value, &found, api.Lenient); err != nil {
		return 0, fmt.Errorf("node: identity of %s %s: %w", m.self.Role, m.self.ID, err)
	}
	if found.Folder == m.self.Folder || m.replace {
		return e.Revision, nil
	}
	return 0, api.Errorf(api.CodeNameTaken, "the id %q belongs to another folder, of a %s that ran on host %s last", m.self.ID, m.self.Role, found.Host).
		WithHint("start it with that folder (--dir), or choose another --id; if that folder is lost for good: --replace")
}

// claimIdentity writes down that the id is this folder's, unless somebody else was faster.
func (m *membership) claimIdentity(ctx context.Context, revision uint64) error {
	if m.identityKey() == "" {
		return nil
	}
	body, err := api.Encode(api.JSON, api.Identity{Version: identityVersion, Folder: m.self.Folder, Host: m.self.Host})
	if err != nil {
		return err
	}
	if revision == 0 {
		_, err = m.kv.Create(ctx, m.identityKey(), body)
	} else {
		_, err = m.kv.Update(ctx, m.identityKey(), body, revision)
	}
	if code := api.CodeOf(err); code != api.CodeNameTaken && code != api.CodeBusy {
		return err
	}
	m.replace = false // somebody was faster, perhaps an earlier try of this process
	_, err = m.checkIdentity(ctx)
	return err
}

// acquire creates the member entry. If one is there, it is that of this folder's last process, whose place is
// taken; or of a process that died and is about to lapse, which is waited for; or of a rival that renews
// it: NAME_TAKEN.
func (m *membership) acquire(ctx context.Context) error {
	body, err := api.Encode(api.JSON, m.self)
	if err != nil {
		return err
	}
	var rival api.KVEntry
	for waited := time.Duration(0); ; waited += refreshEvery / 2 {
		began := time.Now()
		revision, err := m.kv.CreateTTL(ctx, m.key, body, m.ttl)
		if err == nil {
			m.set(revision, began)
			return nil
		}
		if api.CodeOf(err) != api.CodeNameTaken {
			return err
		}
		found, err := m.kv.Get(ctx, m.key)
		if err != nil {
			return err
		}
		var other api.Member
		if found.Revision != 0 && api.Decode(found.Value, &other, api.Lenient) == nil && m.self.Folder != "" && other.Folder == m.self.Folder {
			if revision, err := m.kv.Renew(ctx, m.key, body, found.Revision, m.ttl); err == nil {
				m.set(revision, began)
				return nil
			}
		}
		if rival.Revision != 0 && found.Revision > rival.Revision || waited > 2*m.ttl {
			return api.Errorf(api.CodeNameTaken, "%s %q runs already (host %s, pid %d)", m.self.Role, m.self.ID, other.Host, other.PID).
				WithHint("stop it, or choose another --id")
		}
		if rival.Revision == 0 && found.Revision != 0 {
			rival = found
			m.logger.Info("an earlier process of this id has not lapsed yet; waiting for it", "id", m.self.ID, "at most", m.ttl)
		}
		if err := sleep(ctx, refreshEvery/2); err != nil {
			return err
		}
	}
}

// renew prolongs the entry. If it has lapsed meanwhile, it is made anew and lapsed is true: others may
// have acted without this member. NAME_TAKEN means that somebody else has the entry.
func (m *membership) renew(ctx context.Context) (lapsed bool, err error) {
	body, err := api.Encode(api.JSON, m.self)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	revision := m.revision
	m.mu.Unlock()
	began := time.Now()
	next, err := m.kv.Renew(ctx, m.key, body, revision, m.ttl)
	if err == nil {
		m.set(next, began)
		return false, nil
	}
	// Whose is it? A renewal whose answer was lost is ours too.
	found, getErr := m.kv.Get(ctx, m.key)
	if getErr != nil {
		return false, errors.Join(err, getErr)
	}
	var holder api.Member
	switch {
	case found.Revision == 0:
		if m.lapsed != nil {
			m.lapsed()
		}
		return true, m.enter(ctx)
	case api.Decode(found.Value, &holder, api.Lenient) == nil && holder.Incarnation == m.self.Incarnation:
		m.mu.Lock()
		m.revision = found.Revision
		m.mu.Unlock()
		return false, err
	}
	m.set(0, time.Time{})
	return true, api.Errorf(api.CodeNameTaken, "%s %q was replaced by another process (host %s, pid %d)", m.self.Role, m.self.ID, holder.Host, holder.PID)
}

// set notes a renewal. It counts from when it was sent, so that this member stops before others see it go.
func (m *membership) set(revision uint64, sent time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision, m.renewed = revision, sent
}

// alive reports whether others still see this member. A node that cannot renew stops serving before they
// replace it.
func (m *membership) alive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.renewed.IsZero() && time.Since(m.renewed) < m.ttl
}

// entered reports whether this process has ever been a member.
func (m *membership) entered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision > 0 || !m.renewed.IsZero()
}

// leave removes the entry.
func (m *membership) leave(ctx context.Context) {
	if m.alive() {
		if err := m.kv.Delete(ctx, m.key); err != nil {
			m.logger.Warn("cannot remove the member entry; it lapses by itself", "reason", err)
		}
	}
}

func members(ctx context.Context, kv KV, prefix string) ([]api.Member, error) {
	entries, err := kv.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var list []api.Member
	for _, e := range entries {
		var m api.Member
		if err := api.Decode(e.Value, &m, api.Lenient); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
