package api

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// messages has one of every message, with every field set. Maps have one key: their order is not part of
// the form.
func messages() []any {
	key := Bytes("user/17")
	pin := BucketPin{Bucket: 65534, Generation: 1 << 40}
	pinned := PinnedOnStorage{Storage: "s1", Incarnation: "i1", PMR: "p1", Buckets: []BucketPin{pin}}
	certified := CertifiedStorage{
		Storage: "s1", Incarnation: "i1", PMR: "p1",
		Buckets: []BucketCount{{Bucket: 65534, Generation: 1 << 40, Records: 10, Pairs: 50}},
	}
	fuel := Fuel{Total: 1 << 40, Bucket: 17, BucketMax: 1 << 33, PerRecord: 812.5}
	skipped := SkippedRecord{Bucket: 17, Record: 4711, Key: Bytes("\xfe"), Reason: "bad date"}
	stats := JobStats{
		Cut: 99, Buckets: 256, Storages: 3, Records: 1000, Bytes: 1 << 33, Pairs: 5000, Rows: 20, Attempts: 2, Millis: 1234,
		Module: "ab12", Reduce: "sum", Counters: map[string]int64{"bad": -1}, Fuel: &fuel, Skips: 101, Skipped: []SkippedRecord{skipped},
		Pinned: []PinnedOnStorage{pinned},
	}
	settings := Settings{Version: 1, ID: "c1", Buckets: 256, Replicas: 3, MaxRecord: 4 << 20, DuplicateMS: 120_000, CheckpointBytes: 8 << 20, HistoryMS: 3_600_000}
	member := Member{ID: "s1", Role: "storage", Incarnation: "i1", Folder: "f1", Weight: 1.5, Version: "0.1", Host: "h", PID: 4711}
	info := PMRInfo{PMR: "p1", Job: "j1", Router: "r1", State: "mapping", Snapshot: true}
	status := StorageStatus{
		Storage: "s1", Incarnation: "i1", Applied: 10, Verified: 9, Owned: 8, Loaded: 7, PMRs: []PMRInfo{info}, Parked: 2, Gate: "g1", GatesWaiting: 3, Tickets: 4,
		Skipped: 1, LastSkipped: "5: flags", Reloads: 3, Warnings: []string{"disk"},
	}
	module := Module{
		Name: "wordcount", Version: "1", Digest: "ab12", Size: 900, Kind: "reactor", Functions: []string{"map"}, Reduce: "sum",
		Builtin: true,
	}
	log := LogState{First: 1, Last: 100, Bytes: 1 << 20, Replicas: 3}
	params := map[string]Bytes{"pattern": Bytes("\xff\x00")}
	own := BucketParams{Bucket: 65534, Params: params}
	req := JobRequest{
		Job: "j1", Module: "wordcount@1", Label: "count.wasm", Function: "map", Combine: "combine", Reduce: "sum", Space: "default", Params: params,
		Mode: "hold", TimeoutMS: 60_000, Attempts: 10, Sort: "-value", Limit: 20, WaitMS: 500, MaxBytes: 1 << 19, Proof: true,
		OnError: "skip", MaxSkip: 7, Client: "shop", Buckets: []uint16{3, 65534}, Keys: []Bytes{key}, BucketParams: []BucketParams{own},
	}
	received := Received{Bucket: 65534, State: ReceiveFailed, Bytes: 10, Total: 100, Error: &Error{Code: CodeUnavailable, Message: "no leader"}}
	activation := Activation{Bucket: 7, Owner: "s2", Generation: 33}
	return append(append(jobMessages(req, stats), adminMessages()...), []any{
		Settings{},
		settings, member,
		ReceiveRequest{Order: "o1", Buckets: []uint16{0, 65534}, TTLMS: 60_000, WaitMS: 2000, Bandwidth: 1 << 20},
		received,
		ReceiveReply{Buckets: []Received{{State: ReceiveReady, Bytes: 100, Total: 100}, received}},
		ActivateRequest{Order: "o1", Gate: "g1", Buckets: []BucketPin{{Bucket: 7, Generation: 12}}, FenceSrc: 30, FenceDst: 31},
		activation,
		ActivateReply{Buckets: []Activation{activation}},
		MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: []uint16{7}, Reason: "weights", Takeover: true},
		status, info,
		ClusterStatus{
			Cluster: "dev", Healthy: true, Settings: settings, Log: log, Members: []Member{member},
			Storages: []StorageStatus{status}, Unowned: []uint16{3}, Jobs: 2, JobsWaiting: 5, Problems: []string{"no storage"},
			Topology: topologyMessage(), Gone: []GoneStorage{{Storage: "s3", Buckets: 85, TakeoverMS: -1}}, Moves: MovesReply{Planner: "r1"},
		},
		Error{Code: CodeBusy, Message: "busy", Hint: "later", Details: map[string]string{"storage": "s1"}},
		req,
		own,
		JobReply{Job: "j1", Status: JobDone, Rows: []Row{
			{Key: Bytes("word"), Value: IntValue(-7)},
			{Key: Bytes("\xfe"), Value: FloatValue(0.5)},
			{Key: Bytes{}, Value: BytesValue([]byte("raw"))},
		}, Next: "c1", Stats: &stats},
		Row{Key: Bytes("k"), Value: IntValue(1 << 40)},
		stats, pinned, fuel, skipped,
		ResultRequest{Job: "j1", Cursor: "c1", MaxBytes: 1000, WaitMS: 50},
		CancelRequest{Job: "j1"},
		CertificateRequest{Job: "j1"},
		Certificate{
			Version: 1, Cluster: "c1", Job: "j1", Attempt: 2, Cut: 1 << 41, Buckets: 65535, Wanted: []uint16{65534}, Module: "ab12",
			Params: "cd34", Storages: []CertifiedStorage{certified}, Records: 10, Pairs: 50, Skips: 1, Rows: 4, Output: "ef56",
		},
		certified,
		Empty{},
		log,
		ModuleAddRequest{Digest: "ab12", Name: "wordcount", Version: "2", Reduce: "sum"},
		module,
		ModuleRequest{Module: "wordcount"},
		ModulesReply{Modules: []Module{module}},
		pin,
		PinRequest{Job: "j1", Attempt: 2, Router: "r1", Cut: 99, Age: 77, TTLMS: 5000, Mode: "hold", Space: "default", Buckets: []uint16{3, 65534}},
		PinReply{PMR: "p1", Storage: "s1", Incarnation: "i1", Buckets: []BucketPin{pin}, HasSpace: true},
		MapRequest{
			PMR: "p1", Job: "j1", Router: "r1", Module: "ab12", Name: "wordcount", Function: "map", Combine: "combine",
			Reduce: "sum", Space: "default", Params: params, TimeoutMS: 59_000, JobTimeoutMS: 60_000,
			OnError: "skip", MaxSkip: 7, Client: "shop", Keys: []Bytes{key}, BucketParams: []BucketParams{own},
		},
		GateRequest{Gate: "g1", TTLMS: 10_000, WaitMS: 500, Second: true},
		GateReply{Gate: "g1", State: "held", Running: 2, Fence: 17, LongestHoldMS: 300_000},
		GateName{Gate: "g1"},
		Quotas{Pins: 8, Gates: 4},
		QuotasRequest{Pins: new(8), Gates: new(4)},
		MapReply{End: &MapEnd{PMR: "p1", Job: "j1", Storage: "s1", Size: 3, Output: Bytes("abc")}},
		MapEnd{
			PMR: "p1", Job: "j1", Storage: "s1", Error: &Error{Code: CodeGuestFailed, Message: "trap"}, Records: 10, Bytes: 1000,
			Pairs: 50, Counters: map[string]int64{"bad": 1}, Fuel: &fuel, Skips: 101, Skipped: []SkippedRecord{skipped}, Size: 4, Output: Bytes("\x01\x02\x03\x04"),
			BucketRecords: []uint64{10}, BucketPairs: []uint64{50},
		},
		FetchRequest{PMR: "p1", Cursor: 1 << 19, MaxBytes: 1 << 19},
		FetchReply{Data: Bytes("\x00\xff"), Checksum: 1 << 63, Size: 2},
		PMRRequest{PMR: "p1"},
		PMRStatus{PMR: "p1", State: "mapped", Records: 10, Bytes: 1000, Buckets: 85},
		Progress{Job: "j1", PMR: "p1", Storage: "s1", Buckets: 4, Records: 10, Bytes: 1000},
		JobProgress{Job: "j1", Phase: "map", Place: 3, Attempt: 1, Take: 2, Buckets: 4, Of: 256, Records: 10, Bytes: 1000, Reason: "BUSY"},
		Heartbeat{Router: "r1"},
		PutRequest{Space: "default", Key: &key, Value: Bytes("v")},
		KeyRequest{Space: "default", Key: key},
		SeqReply{Seq: 17, Key: Bytes("k")},
		GetReply{Key: key, Value: Bytes("v")},
		GetRequest{Bucket: 3, Space: "default", Key: key},
		SpaceRequest{Space: "events"},
		SpacesReply{Spaces: []string{"default", "events"}},
	}...)
}

func golden(m any) ([]byte, error) {
	text, err := Encode(JSON, m)
	if err != nil {
		return nil, err
	}
	packed, err := Encode(Msgpack, m)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s\n%s\n", text, hex.EncodeToString(packed)), nil
}

// goldenName is the type's name; an empty message beside a full one is Type.zero.
func goldenName(m any) string {
	v := reflect.ValueOf(m)
	name := v.Type().Name()
	if v.IsZero() && v.NumField() > 0 {
		name += ".zero"
	}
	return filepath.Join("testdata", name+".golden")
}

// The forms of all messages are frozen: first line JSON, second line msgpack.
func TestGoldenFiles(t *testing.T) {
	for _, m := range messages() {
		got, err := golden(m)
		if err != nil {
			t.Fatal(err)
		}
		name := goldenName(m)
		if *update {
			if err := os.WriteFile(name, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%v; go test ./api -update writes it", err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %T is now\n%s, was\n%s", name, m, got, want)
		}
	}
}

func TestRoundTrips(t *testing.T) {
	for _, m := range messages() {
		for _, f := range []Format{JSON, Msgpack} {
			body, err := Encode(f, m)
			if err != nil {
				t.Fatal(err)
			}
			if FormatOf(body) != f {
				t.Errorf("%T as %s looks like %s", m, f, FormatOf(body))
			}
			back := reflect.New(reflect.TypeOf(m))
			if err := Decode(body, back.Interface(), Strict); err != nil {
				t.Errorf("%T as %s: %v", m, f, err)
				continue
			}
			if !reflect.DeepEqual(back.Elem().Interface(), m) {
				t.Errorf("%T as %s came back as\n%+v, was\n%+v", m, f, back.Elem().Interface(), m)
			}
		}
	}
}

// Every exported struct with tags is a message and is among those tested, with no field left zero.
func TestNoMessageIsMissing(t *testing.T) {
	full := map[string]bool{}
	for _, m := range messages() {
		v := reflect.ValueOf(m)
		if v.IsZero() && v.NumField() > 0 {
			continue
		}
		full[v.Type().Name()] = true
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s: field %s is not set", v.Type().Name(), v.Type().Field(i).Name)
			}
		}
	}
	for _, name := range taggedStructs(t) {
		if !full[name] {
			t.Errorf("message %s is not among the tested ones", name)
		}
	}
}

func taggedStructs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			tagged := ok && slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool { return f.Tag != nil })
			if tagged && spec.Name.IsExported() {
				names = append(names, spec.Name.Name)
			}
			return true
		})
	}
	if len(names) < 30 {
		t.Fatalf("only %d messages found: %v", len(names), names)
	}
	return names
}

func TestGoldenFilesAreAllUsed(t *testing.T) {
	used := map[string]bool{}
	for _, m := range messages() {
		used[goldenName(m)] = true
	}
	err := filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".golden") && !used[path] {
			t.Errorf("%s belongs to no message", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
