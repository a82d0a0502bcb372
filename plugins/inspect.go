package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

// How much of a module's faults and names a message repeats.
const (
	maxFaults = 10
	maxListed = 8
	maxName   = 64
)

// Inspect reads a module file and checks it against the guest ABI and limits. The error is a BAD_MODULE
// [api.Error]: its message joins all faults, its details hold them as fault.1, fault.2 and so on. It does
// not compile the module, so the types of operands in its functions may still be wrong.
func Inspect(file []byte, limits Limits) (*Manifest, error) {
	bounds := wasm.DefaultBounds()
	bounds.Size = limits.ModuleBytes
	m, err := wasm.ReadWithin(file, bounds)
	if err != nil {
		return nil, badModule(file, unreadable(err), "")
	}
	in := &inspection{m: m, limits: limits}
	in.run()
	if len(in.faults) > 0 {
		return nil, badModule(file, in.faults, in.hint)
	}
	manifest := &Manifest{
		Digest: Digest(file), Size: len(file), Kind: Reactor, Name: m.Name, Functions: in.functions(), Memory: m.Memories[0],
	}
	if in.isCommand() {
		manifest.Kind, manifest.Functions = Command, []string{"map"} // it takes any name as its argument
	}
	for _, i := range m.Imports {
		manifest.Imports = append(manifest.Imports, i.Module+"."+i.Name)
	}
	slices.Sort(manifest.Imports)
	manifest.Imports = slices.Compact(manifest.Imports)
	_, manifest.HasInit = m.Export("pmr_init")
	_, manifest.HasEnd = m.Export("pmr_end")
	return manifest, nil
}

// unreadable lists the faults of a file that is no module.
func unreadable(err error) []string {
	var faults wasm.Faults
	if !errors.As(err, &faults) {
		return []string{err.Error()}
	}
	var texts []string
	for _, f := range faults {
		texts = append(texts, f.Error())
	}
	return texts
}

func badModule(file []byte, faults []string, hint string) *api.Error {
	shown := faults[:min(len(faults), maxFaults)]
	text := strings.Join(shown, "; ")
	if n := len(faults) - len(shown); n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	e := api.Errorf(api.CodeBadModule, "the module cannot be used: %s", text).With("digest", Digest(file))
	for i, f := range shown {
		e = e.With("fault."+strconv.Itoa(i+1), f)
	}
	if hint != "" {
		return e.WithHint("%s", hint)
	}
	return e
}

// inspection collects the faults of one module.
type inspection struct {
	m      *wasm.Module
	limits Limits
	faults []string
	hint   string
}

func (in *inspection) fault(format string, args ...any) {
	in.faults = append(in.faults, fmt.Sprintf(format, args...))
}

func (in *inspection) run() {
	in.imports()
	in.memory()
	in.tables()
	if _, ok := in.m.Export(wasm.FuelExport); ok {
		in.fault("it exports %s, a name that the host adds itself", quote(wasm.FuelExport))
	}
	if in.isCommand() {
		in.command()
		return
	}
	in.exports()
	in.version()
	in.batchFunctions()
}

func (in *inspection) isCommand() bool {
	e, ok := in.m.Export("_start")
	return ok && e.Kind == wasm.Func
}

// command checks a program. Exports of a reactor cannot be called beside _start, and what it emits is what it
// writes.
func (in *inspection) command() {
	if e, _ := in.m.Export("_start"); !e.Func.Is(startType.Params, startType.Results) {
		in.fault("its export _start is %s; it must be %s", e.Func, startType)
	}
	if _, both := in.m.Export("pmr_alloc"); both {
		in.fault("it exports both _start and pmr_alloc, so it may be a command or a reactor")
		in.hint = "build it as a reactor, without _start, or as a command, without pmr_alloc"
		if slices.Contains(in.m.Customs, "go:buildid") { // Go's linker writes it
			in.hint = "build it with -buildmode=c-shared"
		}
		return
	}
	for _, i := range in.m.Imports {
		if i.Module == "pmr1" && strings.HasPrefix(i.Name, "emit") {
			in.fault("it imports %s, but a command (it exports _start) emits what it writes to standard output", quote(i.Module+"."+i.Name))
		}
	}
}

func (in *inspection) imports() {
	for _, i := range in.m.Imports {
		name := quote(i.Module + "." + i.Name)
		want, known := supplied[i.Module+"."+i.Name]
		switch {
		case i.Kind == wasm.Memory:
			in.fault("it imports its memory as %s; it must have a memory of its own and export it as \"memory\"", name)
		case i.Kind != wasm.Func:
			in.fault("it imports the %s %s, which the host does not have", i.Kind, name)
		case !known:
			in.fault("it imports %s %s, which the host does not have%s", name, i.Func, importHint(i))
		case !want.Is(i.Func.Params, i.Func.Results):
			in.fault("it imports %s as %s; it is %s", name, i.Func, want)
		}
	}
}

// importHint explains imports that toolchains bring in by themselves.
func importHint(i wasm.Import) string {
	switch {
	case i.Module == "env" && (i.Name == "trace" || i.Name == "seed"):
		return " (AssemblyScript: build with --use " + i.Name + "= or without it)"
	case i.Module == "gojs" || i.Module == "go":
		return " (Go: build with GOOS=wasip1, not js)"
	case i.Module == "wasi_unstable":
		return " (WASI preview 0: build for " + wasiModule + ")"
	case strings.HasPrefix(i.Module, "wasi:"):
		return " (WASI preview 2: build a core module for " + wasiModule + ")"
	case strings.HasPrefix(i.Module, "pmr") && i.Module != "pmr1":
		return fmt.Sprintf(" (the host has version %d of the guest ABI, pmr1)", ABIVersion)
	case i.Module == "__wbindgen_placeholder__":
		return " (Rust: build for wasm32-unknown-unknown without wasm-bindgen)"
	default:
		return ""
	}
}

func (in *inspection) memory() {
	own := len(in.m.Memories)
	for _, i := range in.m.Imports {
		if i.Kind == wasm.Memory {
			own--
		}
	}
	e, exported := in.m.Export("memory")
	switch {
	case exported && e.Kind != wasm.Memory:
		in.fault("its export \"memory\" is a %s", e.Kind)
	case !exported && own > 0:
		in.fault("it does not export its memory; export it as \"memory\"")
	case !exported && len(in.m.Memories) == 0:
		in.fault("it has no memory; it needs one, exported as \"memory\"")
	}
	for i, m := range in.m.Memories {
		if m.Min > in.limits.MemoryPages {
			in.fault("its memory begins with %d pages of 64 KiB; the limit is %d", m.Min, in.limits.MemoryPages)
			continue
		}
		in.segments("data", in.m.Data, uint32(i), uint64(m.Min)*65_536)
	}
}

func (in *inspection) tables() {
	for i, t := range in.m.Tables {
		if t.Min > in.limits.TableElements {
			in.fault("its table %d begins with %d elements; the limit is %d", i, t.Min, in.limits.TableElements)
			continue
		}
		in.segments("element", in.m.Elements, uint32(i), uint64(t.Min))
	}
}

// segments reports the first segment that is written outside of its table or memory when the module starts.
func (in *inspection) segments(what string, segments []wasm.Segment, index uint32, size uint64) {
	for i, s := range segments {
		if s.Active && s.Known && s.Index == index && uint64(s.Offset)+uint64(s.Len) > size {
			in.fault("its %s segment %d lies at %d to %d, but there are only %d", what, i, s.Offset, uint64(s.Offset)+uint64(s.Len), size)
			return
		}
	}
}

// exports checks the functions whose types the ABI fixes.
func (in *inspection) exports() {
	if e, ok := in.m.Export("pmr_alloc"); !ok || e.Kind != wasm.Func {
		in.fault("it does not export pmr_alloc %s, which gives the host a buffer to write to", allocType)
	}
	for _, f := range []struct {
		name string
		want wasm.FuncType
	}{
		{"pmr_alloc", allocType},
		{"pmr_init", batchType},
		{"pmr_end", endType},
		{"_initialize", startType},
		{"map", batchType},
		{"combine", batchType},
		{"reduce", batchType},
	} {
		e, ok := in.m.Export(f.name)
		switch {
		case ok && e.Kind != wasm.Func:
			in.fault("its export %s is a %s; it must be a function %s", f.name, e.Kind, f.want)
		case ok && !e.Func.Is(f.want.Params, f.want.Results):
			in.fault("its export %s is %s; it must be %s", f.name, e.Func, f.want)
		}
	}
}

// version checks a module that says which version of the ABI it was made for.
func (in *inspection) version() {
	for _, name := range []string{"abi_version", "pmr_abi_version", "ABI_VERSION", "EXPORT_ABI_VERSION"} {
		if v, ok := in.m.ConstResult(name); ok && v != ABIVersion {
			in.fault("its %s is %d; this engine supports %d to %d", name, v, ABIVersion, ABIVersion)
		}
	}
}

// batchFunctions reports a module without any function that a job could name.
func (in *inspection) batchFunctions() {
	if len(in.functions()) > 0 {
		return
	}
	if _, wrong := in.m.Export("map"); wrong {
		return // said already
	}
	if slices.Contains(in.m.Customs, "go:buildid") { // a program that imports the SDK and exports nothing itself
		in.hint = "put `//go:wasmexport map` above the function"
	}
	in.fault("it exports no function of the shape %s, as map must be; it exports %s", batchType, in.exported())
}

func (in *inspection) functions() []string {
	var names []string
	for _, e := range in.m.Exports {
		if e.Kind == wasm.Func && e.Func.Is(batchType.Params, batchType.Results) && !strings.HasPrefix(e.Name, "pmr_") {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names
}

// exported lists exports with their types.
func (in *inspection) exported() string {
	if len(in.m.Exports) == 0 {
		return "nothing"
	}
	var list []string
	for _, e := range in.m.Exports[:min(len(in.m.Exports), maxListed)] {
		if e.Kind == wasm.Func {
			list = append(list, fmt.Sprintf("%s %s", quote(e.Name), e.Func))
		} else {
			list = append(list, fmt.Sprintf("%s (%s)", quote(e.Name), e.Kind))
		}
	}
	if n := len(in.m.Exports) - len(list); n > 0 {
		list = append(list, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(list, ", ")
}

// quote is a name out of a file, safe to print and not too long.
func quote(name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "") + "..."
	}
	return strconv.Quote(name)
}
