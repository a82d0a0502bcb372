package store

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// tree is a persistent treap: no operation changes a node, so an old root stays a valid snapshot. A key's
// priority is its hash; the shape depends on the keys alone. A nil tree is empty.
type tree struct {
	key, value  []byte
	prio        uint64
	left, right *tree
}

// above reports whether a belongs nearer to the root than b. Equal hashes are told apart by the key.
func (t *tree) above(o *tree) bool {
	if t.prio != o.prio {
		return t.prio > o.prio
	}
	return bytes.Compare(t.key, o.key) < 0
}

func (t *tree) with(left, right *tree) *tree {
	return &tree{key: t.key, value: t.value, prio: t.prio, left: left, right: right}
}

func (t *tree) get(key []byte) (value []byte, ok bool) {
	for t != nil {
		c := bytes.Compare(key, t.key)
		switch {
		case c == 0:
			return t.value, true
		case c < 0:
			t = t.left
		default:
			t = t.right
		}
	}
	return nil, false
}

// put returns the tree with key set to value; it keeps both slices.
func (t *tree) put(key, value []byte) *tree {
	return t.insert(&tree{key: key, value: value, prio: xxhash.Sum64(key)})
}

func (t *tree) insert(n *tree) *tree {
	if t == nil {
		return n
	}
	c := bytes.Compare(n.key, t.key)
	switch {
	case c == 0:
		return n.with(t.left, t.right)
	case n.above(t):
		return n.with(t.split(n.key))
	case c < 0:
		return t.with(t.left.insert(n), t.right)
	default:
		return t.with(t.left, t.right.insert(n))
	}
}

func (t *tree) remove(key []byte) *tree {
	if t == nil {
		return nil
	}
	c := bytes.Compare(key, t.key)
	if c == 0 {
		return merge(t.left, t.right)
	}
	if c < 0 {
		left := t.left.remove(key)
		if left == t.left {
			return t
		}
		return t.with(left, t.right)
	}
	right := t.right.remove(key)
	if right == t.right {
		return t
	}
	return t.with(t.left, right)
}

// removeSpan returns the tree without the keys of s.
func (t *tree) removeSpan(s span) *tree {
	low, rest := t.split(s.lower)
	_, high := rest.split(s.upper)
	return merge(low, high)
}

// split returns the keys below key, and the others.
func (t *tree) split(key []byte) (low, high *tree) {
	if t == nil {
		return nil, nil
	}
	if bytes.Compare(t.key, key) < 0 {
		a, b := t.right.split(key)
		return t.with(t.left, a), b
	}
	a, b := t.left.split(key)
	return a, t.with(b, t.right)
}

// merge joins two trees of which a's keys all sort before b's.
func merge(a, b *tree) *tree {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.above(b):
		return a.with(a.left, merge(a.right, b))
	default:
		return b.with(merge(a, b.left), b.right)
	}
}

// walk reads the keys of a span of a tree in order.
type walk struct {
	path  []*tree // nodes that are still to be read, with their right subtrees; the next one last
	upper []byte
}

func (t *tree) walk(s span) *walk {
	w := &walk{upper: s.upper}
	for t != nil {
		if bytes.Compare(t.key, s.lower) < 0 {
			t = t.right
			continue
		}
		w.path = append(w.path, t)
		t = t.left
	}
	return w
}

// peek returns the next node without reading past it, or nil at the end.
func (w *walk) peek() *tree {
	if len(w.path) == 0 {
		return nil
	}
	t := w.path[len(w.path)-1]
	if bytes.Compare(t.key, w.upper) >= 0 {
		return nil
	}
	return t
}

// step goes past the node that peek returned.
func (w *walk) step() {
	t := w.path[len(w.path)-1]
	w.path = w.path[:len(w.path)-1]
	for t = t.right; t != nil; t = t.left {
		w.path = append(w.path, t)
	}
}
