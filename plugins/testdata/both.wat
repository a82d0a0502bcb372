;; A program that would be a reactor, too.
(module
  (import "pmr1" "emit" (func (param i32 i32)))
  (memory (export "memory") 1)
  (func (export "pmr_alloc") (param i32) (result i32) (i32.const 0))
  (func (export "map") (param i32 i32) (result i32) (i32.const 0))
  (func (export "_start")))
