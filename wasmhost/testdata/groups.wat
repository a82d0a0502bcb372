;; Functions over groups.
(module
  (import "pmr1" "emit" (func $emit (param i32 i32)))
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (memory (export "memory") 3)
  (data (i32.const 16) "zz")
  (global $sum (mut i64) (i64.const 0))
  (func (export "pmr_alloc") (param $n i32) (result i32) (i32.const 65536))
  ;; sum adds the values of each key, which may come in several batches.
  (func (export "sum") (param $p i32) (param $n i32) (result i32)
    (local $end i32) (local $key i32) (local $klen i32) (local $flags i32)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (block $done
      (loop $frame
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $flags (i32.load (local.get $p)))
        (local.set $klen (i32.load offset=4 (local.get $p)))
        (local.set $key (i32.add (local.get $p) (i32.const 12)))
        (if (i32.and (local.get $flags) (i32.const 1)) (then (global.set $sum (i64.const 0))))
        (global.set $sum (i64.add (global.get $sum) (i64.load (i32.add (local.get $key) (local.get $klen)))))
        (if (i32.and (local.get $flags) (i32.const 2))
          (then (call $emit_i64 (local.get $key) (local.get $klen) (global.get $sum))))
        (local.set $p (i32.add (i32.add (local.get $key) (local.get $klen)) (i32.load offset=8 (local.get $p))))
        (br $frame)))
    (i32.const 0))
  ;; echo emits its frames with their flags.
  (func (export "echo") (param i32 i32) (result i32) (call $emit (local.get 0) (local.get 1)) (i32.const 0))
  ;; other emits a key of its own.
  (func (export "other") (param i32 i32) (result i32)
    (call $emit_i64 (i32.const 16) (i32.const 2) (i64.const 1)) (i32.const 0)))
