package plugins

import "github.com/pinion-mr/pinion/plugins/wasm"

// ABIVersion is the version of the guest ABI, the number in the name of the import module pmr1.
const ABIVersion = 1

const wasiModule = "wasi_snapshot_preview1"

var (
	i32 = wasm.I32
	i64 = wasm.I64
	f64 = wasm.F64
)

func signature(results []wasm.ValType, params ...wasm.ValType) wasm.FuncType {
	return wasm.FuncType{Params: params, Results: results}
}

// supplied are the functions that the host gives to guests, by module and name.
var supplied = withWASI(map[string]wasm.FuncType{
	"pmr1.emit":     signature(nil, i32, i32),
	"pmr1.emit_kv":  signature(nil, i32, i32, i32, i32),
	"pmr1.emit_i64": signature(nil, i32, i32, i64),
	"pmr1.emit_f64": signature(nil, i32, i32, f64),
	"pmr1.log":      signature(nil, i32, i32, i32),
	"pmr1.count":    signature(nil, i32, i32, i64),
	"pmr1.fail":     signature(nil, i32, i32),
	"env.abort":     signature(nil, i32, i32, i32, i32),
})

// wasiParams are the parameters of the functions of preview 1, i for i32 and l for i64. All but proc_exit
// return an i32.
var wasiParams = map[string]string{
	"args_get":                "ii",
	"args_sizes_get":          "ii",
	"clock_res_get":           "ii",
	"clock_time_get":          "ili",
	"environ_get":             "ii",
	"environ_sizes_get":       "ii",
	"fd_advise":               "illi",
	"fd_allocate":             "ill",
	"fd_close":                "i",
	"fd_datasync":             "i",
	"fd_fdstat_get":           "ii",
	"fd_fdstat_set_flags":     "ii",
	"fd_fdstat_set_rights":    "ill",
	"fd_filestat_get":         "ii",
	"fd_filestat_set_size":    "il",
	"fd_filestat_set_times":   "illi",
	"fd_pread":                "iiili",
	"fd_prestat_dir_name":     "iii",
	"fd_prestat_get":          "ii",
	"fd_pwrite":               "iiili",
	"fd_read":                 "iiii",
	"fd_readdir":              "iiili",
	"fd_renumber":             "ii",
	"fd_seek":                 "ilii",
	"fd_sync":                 "i",
	"fd_tell":                 "ii",
	"fd_write":                "iiii",
	"path_create_directory":   "iii",
	"path_filestat_get":       "iiiii",
	"path_filestat_set_times": "iiiilli",
	"path_link":               "iiiiiii",
	"path_open":               "iiiiillii",
	"path_readlink":           "iiiiii",
	"path_remove_directory":   "iii",
	"path_rename":             "iiiiii",
	"path_symlink":            "iiiii",
	"path_unlink_file":        "iii",
	"poll_oneoff":             "iiii",
	"proc_exit":               "i",
	"proc_raise":              "i",
	"random_get":              "ii",
	"sched_yield":             "",
	"sock_accept":             "iii",
	"sock_recv":               "iiiiii",
	"sock_send":               "iiiii",
	"sock_shutdown":           "ii",
}

func withWASI(functions map[string]wasm.FuncType) map[string]wasm.FuncType {
	for name, params := range wasiParams {
		f := wasm.FuncType{Results: []wasm.ValType{i32}}
		if name == "proc_exit" {
			f.Results = nil
		}
		for _, p := range params {
			if p == 'l' {
				f.Params = append(f.Params, i64)
			} else {
				f.Params = append(f.Params, i32)
			}
		}
		functions[wasiModule+"."+name] = f
	}
	return functions
}

// The functions that a module exports to the host.
var (
	batchType = signature([]wasm.ValType{i32}, i32, i32)
	allocType = signature([]wasm.ValType{i32}, i32)
	endType   = signature([]wasm.ValType{i32})
	startType = signature(nil)
)
