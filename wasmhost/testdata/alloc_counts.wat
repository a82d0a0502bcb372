;; pmr_alloc keeps what it was asked for, one buffer after another; map emits the last and the number of
;; calls. It refuses more than 500,000 bytes.
(module
  (import "pmr1" "emit_i64" (func $emit (param i32 i32 i64)))
  (memory (export "memory") 32)
  (data (i32.const 16) "asked")
  (global $asked (mut i32) (i32.const 0))
  (global $calls (mut i32) (i32.const 0))
  (func (export "pmr_alloc") (param $n i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (if (i32.gt_u (local.get $n) (i32.const 500000)) (then (return (i32.const 0))))
    (global.set $asked (local.get $n))
    (i32.const 65536))
  (func (export "map") (param i32 i32) (result i32)
    (call $emit (i32.const 16) (i32.const 5) (i64.extend_i32_u (global.get $asked)))
    (call $emit (i32.const 16) (i32.const 1) (i64.extend_i32_u (global.get $calls)))
    (i32.const 0)))
