;; pmr_alloc returns a buffer whose last bytes are outside of the memory.
(module
  (memory (export "memory") 2)
  (func (export "pmr_alloc") (param i32) (result i32) (i32.const 65540))
  (func (export "map") (param i32 i32) (result i32) (i32.const 0)))
