;; A WASI command that writes one line without reading its input, and ends with 0 in the middle of a loop.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "bucket\091\n")
  (data (i32.const 64) "\10\00\00\00\09\00\00\00")
  (func (export "_start")
    (drop (call $write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 128)))
    (loop $again
      (call $exit (i32.const 0))
      (br $again))))
