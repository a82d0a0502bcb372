;; A WASI command that says on stderr why it ends, and ends with 3.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "the disk is on fire\n")
  (data (i32.const 64) "\10\00\00\00\14\00\00\00")
  (func (export "_start")
    (drop (call $write (i32.const 2) (i32.const 64) (i32.const 1) (i32.const 128)))
    (call $exit (i32.const 3))))
