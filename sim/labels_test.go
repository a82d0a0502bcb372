package sim

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// aliased is a subject without what is random in it: the incarnation in a router's name.
func (w *world) aliased(subject string) string {
	first, rest, _ := strings.Cut(subject, ".")
	name, verb, _ := strings.Cut(rest, ".")
	w.mu.Lock()
	defer w.mu.Unlock()
	if alias, ok := w.aliases[name]; ok && first == "router" {
		return first + "." + alias + "." + verb
	}
	return subject
}

// describe names a message by what it says, without its random ids.
func (w *world) describe(message any) string {
	if v := reflect.ValueOf(message); v.Kind() == reflect.Struct {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		message = p.Interface()
	}
	switch m := message.(type) {
	case *api.PinRequest:
		return fmt.Sprintf("%s/%d at %d", m.Job, m.Attempt, m.Cut)
	case *api.MapRequest:
		return w.oracle.name(m.PMR)
	case *api.PMRRequest:
		return w.oracle.name(m.PMR)
	case *api.FetchRequest:
		return fmt.Sprintf("%s from %d", w.oracle.name(m.PMR), m.Cursor)
	case *api.MapEnd:
		if m.Error != nil {
			return w.oracle.name(m.PMR) + " " + string(m.Error.Code)
		}
		return w.oracle.name(m.PMR)
	case *api.JobRequest:
		return m.Job
	case *api.ResultRequest:
		return m.Job
	case *api.GateRequest:
		return driversGate(m.Gate)
	case *api.GateName:
		return driversGate(m.Gate)
	case *api.CancelRequest:
		return m.Job
	case *api.PutRequest:
		return string(m.Value)
	case *api.ReceiveRequest:
		return fmt.Sprint(m.Buckets)
	case *api.ActivateRequest:
		return fmt.Sprint(m.Buckets)
	case *api.JobProgress:
		return fmt.Sprintf("%d %s", m.Attempt, m.Phase)
	case *api.Progress:
		return w.oracle.name(m.PMR)
	}
	return ""
}

// labelEntry describes an entry that is to be appended.
func (w *world) labelEntry(subject string, header map[string]string, data []byte) string {
	entry, err := buckets.Decode(api.LogEntry{Subject: subject, Header: header, Data: data}, w.settings.Buckets)
	if err != nil {
		return subject + " malformed"
	}
	switch e := entry.(type) {
	case buckets.Cut:
		return fmt.Sprintf("%s %s/%d", subject, e.Job, e.Attempt)
	case buckets.Own:
		return fmt.Sprintf("%s %s %s", subject, e.Owner, driversGate(e.Move))
	case buckets.Records:
		e.Each(func(_, value []byte, _ bool) { subject += " " + string(value) })
	}
	return subject
}

// driversGate is a gate of the test driver; those of routers, and their orders, have random names.
func driversGate(name string) string {
	if strings.HasPrefix(name, gatePrefix) {
		return name
	}
	return ""
}
