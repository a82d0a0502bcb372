;; The memory is there, but not exported, and too big.
(module
  (memory 2000)
  (func (export "pmr_alloc") (param i32) (result i32) (i32.const 1))
  (func (export "map") (param i32 i32) (result i32) (i32.const 0)))
