;; A program that emits as a reactor does, and has a _start of another shape.
(module
  (import "pmr1" "emit" (func (param i32 i32)))
  (import "pmr1" "log" (func (param i32 i32 i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (result i32) (i32.const 0)))
