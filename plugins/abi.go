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

// supplied are the functions that the host gives to guests, but those of WASI.
var supplied = map[string]wasm.FuncType{
	"pmr1.emit":     signature(nil, i32, i32),
	"pmr1.emit_kv":  signature(nil, i32, i32, i32, i32),
	"pmr1.emit_i64": signature(nil, i32, i32, i64),
	"pmr1.emit_f64": signature(nil, i32, i32, f64),
	"pmr1.log":      signature(nil, i32, i32, i32),
	"pmr1.count":    signature(nil, i32, i32, i64),
	"pmr1.fail":     signature(nil, i32, i32),
	"env.abort":     signature(nil, i32, i32, i32, i32),
}

// wasiFunctions are those of preview 1.
var wasiFunctions = map[string]bool{
	"args_get": true, "args_sizes_get": true, "clock_res_get": true, "clock_time_get": true, "environ_get": true,
	"environ_sizes_get": true, "fd_advise": true, "fd_allocate": true, "fd_close": true, "fd_datasync": true,
	"fd_fdstat_get": true, "fd_fdstat_set_flags": true, "fd_fdstat_set_rights": true, "fd_filestat_get": true,
	"fd_filestat_set_size": true, "fd_filestat_set_times": true, "fd_pread": true, "fd_prestat_dir_name": true,
	"fd_prestat_get": true, "fd_pwrite": true, "fd_read": true, "fd_readdir": true, "fd_renumber": true,
	"fd_seek": true, "fd_sync": true, "fd_tell": true, "fd_write": true, "path_create_directory": true,
	"path_filestat_get": true, "path_filestat_set_times": true, "path_link": true, "path_open": true,
	"path_readlink": true, "path_remove_directory": true, "path_rename": true, "path_symlink": true,
	"path_unlink_file": true, "poll_oneoff": true, "proc_exit": true, "proc_raise": true, "random_get": true,
	"sched_yield": true, "sock_accept": true, "sock_recv": true, "sock_send": true, "sock_shutdown": true,
}

// The functions that a module exports to the host.
var (
	batchType = signature([]wasm.ValType{i32}, i32, i32)
	allocType = signature([]wasm.ValType{i32}, i32)
	endType   = signature([]wasm.ValType{i32})
	startType = signature(nil)
)
