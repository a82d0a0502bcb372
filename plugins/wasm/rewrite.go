package wasm

import "encoding/binary"

// CapTables returns the module's bytes with a maximum of elements, or of its minimum if that is more,
// on each table of its own. It returns the bytes as they are if all tables have such a maximum.
// A table without one may grow until the host has no memory left.
func CapTables(m *Module, elements uint32) []byte {
	var payload []byte
	own := m.Tables
	for _, i := range m.Imports {
		if i.Kind == Table {
			own = own[1:]
		}
	}
	payload = binary.AppendUvarint(payload, uint64(len(own)))
	changed := false
	for _, t := range own {
		limit := max(elements, t.Min)
		if !t.HasMax || t.Max > limit {
			t.Max, changed = limit, true
		}
		payload = append(payload, byte(t.Type), 1)
		payload = binary.AppendUvarint(payload, uint64(t.Min))
		payload = binary.AppendUvarint(payload, uint64(t.Max))
	}
	if !changed {
		return m.raw
	}
	return m.replace(tableSection, payload)
}

// replace returns the file with other contents in the section of an id, which must be there.
func (m *Module) replace(id byte, payload []byte) []byte {
	out := append([]byte(nil), m.raw[:headerLen]...)
	for _, s := range m.Sections {
		contents := m.raw[s.Offset : s.Offset+s.Size]
		if s.ID == id {
			contents = payload
		}
		out = append(out, s.ID)
		out = binary.AppendUvarint(out, uint64(len(contents)))
		out = append(out, contents...)
	}
	return out
}
