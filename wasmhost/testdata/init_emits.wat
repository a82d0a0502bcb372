;; pmr_init emits a block.
(module
  (import "pmr1" "emit" (func $emit (param i32 i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "\00\00\00\00\01\00\00\00\00\00\00\00k")
  (func (export "pmr_alloc") (param i32) (result i32) (i32.const 65536))
  (func (export "pmr_init") (param i32 i32) (result i32) (call $emit (i32.const 16) (i32.const 13)) (i32.const 0))
  (func (export "map") (param i32 i32) (result i32) (i32.const 0)))
