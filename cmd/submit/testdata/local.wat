;; Functions for jobs over files.
(module
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (import "pmr1" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 3)
  (data (i32.const 16) "n")
  (global $called (mut i32) (i32.const 0))
  (func (export "pmr_alloc") (param $n i32) (result i32) (i32.const 65536))

  ;; map emits each value as a key, with 1. A value that begins with "!" traps.
  (func (export "map") (param $p i32) (param $n i32) (result i32)
    (local $end i32) (local $value i32) (local $vlen i32)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (block $done
      (loop $frame
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $vlen (i32.load offset=8 (local.get $p)))
        (local.set $value (i32.add (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p))))
        (if (i32.eq (i32.load8_u (local.get $value)) (i32.const 33)) (then (unreachable)))
        (call $emit_i64 (local.get $value) (local.get $vlen) (i64.const 1))
        (local.set $p (i32.add (local.get $value) (local.get $vlen)))
        (br $frame)))
    (i32.const 0))

  ;; once emits 1 in the first call since the instance was made.
  (func (export "once") (param i32 i32) (result i32)
    (if (i32.eqz (global.get $called)) (then (call $emit_i64 (i32.const 16) (i32.const 1) (i64.const 1))))
    (global.set $called (i32.const 1))
    (i32.const 0))

  ;; calls emits 1 for each call.
  (func (export "calls") (param i32 i32) (result i32)
    (call $emit_i64 (i32.const 16) (i32.const 1) (i64.const 1))
    (i32.const 0))

  ;; logs logs "n".
  (func (export "logs") (param i32 i32) (result i32)
    (call $log (i32.const 1) (i32.const 16) (i32.const 1))
    (i32.const 0)))
