;; The start function emits, when there is no bucket to which the pair could belong.
(module
  (import "pmr1" "emit_i64" (func $emit (param i32 i32 i64)))
  (memory (export "memory") 8)
  (data (i32.const 16) "k")
  (func $start (call $emit (i32.const 16) (i32.const 1) (i64.const 1)))
  (start $start)
  (func (export "pmr_alloc") (param i32) (result i32) (i32.const 65536))
  (func (export "map") (param i32 i32) (result i32) (i32.const 0)))
