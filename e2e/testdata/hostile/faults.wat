;; Functions that end at once and badly: traps, complaints of the guest's own, lies about its memory, and pairs
;; that may not be emitted.
(module
  (import "pmr1" "emit" (func $emit (param i32 i32)))
  (import "pmr1" "emit_kv" (func $emit_kv (param i32 i32 i32 i32)))
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (import "pmr1" "emit_f64" (func $emit_f64 (param i32 i32 f64)))
  (import "pmr1" "log" (func $log (param i32 i32 i32)))
  (import "pmr1" "count" (func $count (param i32 i32 i64)))
  (import "pmr1" "fail" (func $fail (param i32 i32)))
  (import "env" "abort" (func $abort (param i32 i32 i32 i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 8)
  (type $map (func (param i32 i32) (result i32)))
  (type $nothing (func))
  (table 4 8 funcref)
  (elem (i32.const 0) func $empty)
  (data (i32.const 16) "k")
  (data (i32.const 32) "bad record: no colon")

  (func $empty)

  (func (export "pmr_alloc") (param $n i32) (result i32)
    (if (result i32) (i32.gt_u (local.get $n) (i32.const 400000)) (then (i32.const 0)) (else (i32.const 65536))))

  (func (export "one") (param i32 i32) (result i32)
    (call $emit_i64 (i32.const 16) (i32.const 1) (i64.const 1))
    (i32.const 0))

  ;; traps

  (func (export "unreachable") (param i32 i32) (result i32) unreachable)

  (func (export "divides") (param i32 i32) (result i32)
    (i32.div_s (i32.const 1) (i32.const 0)))

  (func (export "overflows") (param i32 i32) (result i32)
    (i32.div_s (i32.const -2147483648) (i32.const -1)))

  (func (export "truncates") (param i32 i32) (result i32)
    (i32.trunc_f64_s (f64.const nan)))

  (func (export "loads") (param i32 i32) (result i32)
    (i32.load (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 3))))

  ;; the sum of address and offset does not fit 32 bits
  (func (export "stores") (param i32 i32) (result i32)
    (i32.store offset=4294967295 (i32.const -1) (i32.const 1))
    (i32.const 0))

  (func (export "fills") (param i32 i32) (result i32)
    (memory.fill (i32.const 16) (i32.const 0) (i32.const -1))
    (i32.const 0))

  (func (export "calls_wrong") (param i32 i32) (result i32)
    (call_indirect (type $map) (i32.const 0) (i32.const 0) (i32.const 0)))

  (func (export "calls_null") (param i32 i32) (result i32)
    (call_indirect (type $nothing) (i32.const 1))
    (i32.const 0))

  (func (export "calls_outside") (param i32 i32) (result i32)
    (call_indirect (type $nothing) (i32.const 100))
    (i32.const 0))

  (func $descend (param $n i64) (result i64)
    (i64.add (local.get $n) (call $descend (i64.add (local.get $n) (i64.const 1)))))

  (func (export "descends") (param i32 i32) (result i32)
    (i32.wrap_i64 (call $descend (i64.const 0))))

  ;; complaints

  (func (export "fails") (param i32 i32) (result i32)
    (call $fail (i32.const 32) (i32.const 20))
    (i32.const 0))

  (func (export "returns") (param i32 i32) (result i32)
    (call $log (i32.const 3) (i32.const 32) (i32.const 20))
    (i32.const -1))

  ;; as AssemblyScript does: a string of UTF-16 whose length lies before it
  (func (export "aborts") (param i32 i32) (result i32)
    (i32.store (i32.const 128) (i32.const 4))
    (i32.store16 (i32.const 132) (i32.const 0x6f))
    (i32.store16 (i32.const 134) (i32.const 0x68))
    (call $abort (i32.const 132) (i32.const 0) (i32.const 7) (i32.const 3))
    (i32.const 0))

  (func (export "aborts_outside") (param i32 i32) (result i32)
    (call $abort (i32.const -4) (i32.const 2147483647) (i32.const 7) (i32.const 3))
    (i32.const 0))

  (func (export "exits") (param i32 i32) (result i32)
    (call $exit (i32.const 3))
    (i32.const 0))

  (func (export "quits") (param i32 i32) (result i32)
    (call $exit (i32.const 0))
    (i32.const 0))

  ;; lies

  (func (export "key_outside") (param i32 i32) (result i32)
    (call $emit_kv (i32.const 2147483647) (i32.const 4) (i32.const 16) (i32.const 1))
    (i32.const 0))

  ;; pointer and length together wrap around to 8
  (func (export "key_wraps") (param i32 i32) (result i32)
    (call $emit_kv (i32.const 16) (i32.const -8) (i32.const 16) (i32.const 1))
    (i32.const 0))

  (func (export "value_wraps") (param i32 i32) (result i32)
    (call $emit_kv (i32.const 16) (i32.const 1) (i32.const -65536) (i32.const 65552))
    (i32.const 0))

  (func (export "block_wraps") (param i32 i32) (result i32)
    (call $emit (i32.const -12) (i32.const 24))
    (i32.const 0))

  (func (export "log_outside") (param i32 i32) (result i32)
    (call $log (i32.const 1) (i32.const -16) (i32.const 64))
    (i32.const 0))

  (func (export "count_outside") (param i32 i32) (result i32)
    (call $count (i32.const -16) (i32.const 64) (i64.const 1))
    (i32.const 0))

  (func (export "fail_outside") (param i32 i32) (result i32)
    (call $fail (i32.const -16) (i32.const 64))
    (i32.const 0))

  ;; pairs

  ;; a frame whose key would be 4 GiB long
  (func (export "block_garbage") (param i32 i32) (result i32)
    (i32.store (i32.const 128) (i32.const 0))
    (i32.store (i32.const 132) (i32.const -1))
    (i32.store (i32.const 136) (i32.const -1))
    (call $emit (i32.const 128) (i32.const 64))
    (i32.const 0))

  ;; half of a header
  (func (export "block_cut") (param i32 i32) (result i32)
    (call $emit (i32.const 1024) (i32.const 6))
    (i32.const 0))

  (func (export "flags_unknown") (param i32 i32) (result i32)
    (i32.store (i32.const 128) (i32.const 64))
    (i32.store (i32.const 132) (i32.const 0))
    (i32.store (i32.const 136) (i32.const 0))
    (call $emit (i32.const 128) (i32.const 12))
    (i32.const 0))

  ;; an i64 of one byte
  (func (export "number_short") (param i32 i32) (result i32)
    (i32.store (i32.const 128) (i32.const 4))
    (i32.store (i32.const 132) (i32.const 1))
    (i32.store (i32.const 136) (i32.const 1))
    (call $emit (i32.const 128) (i32.const 14))
    (i32.const 0))

  (func (export "key_long") (param i32 i32) (result i32)
    (call $emit_kv (i32.const 0) (i32.const 65536) (i32.const 16) (i32.const 1))
    (i32.const 0))

  (func (export "nan") (param i32 i32) (result i32)
    (call $emit_f64 (i32.const 16) (i32.const 1) (f64.const nan))
    (i32.const 0))

  (func (export "maximum") (param i32 i32) (result i32)
    (call $emit_i64 (i32.const 16) (i32.const 1) (i64.const 9223372036854775807))
    (i32.const 0))

  (func (export "text") (param i32 i32) (result i32)
    (call $emit_kv (i32.const 16) (i32.const 1) (i32.const 32) (i32.const 3))
    (i32.const 0))

  ;; a reduce that emits a key which it was not given
  (func (export "invents") (param i32 i32) (result i32)
    (call $emit_i64 (i32.const 32) (i32.const 3) (i64.const 1))
    (i32.const 0))

  ;; a counter of a new name at each turn
  (func (export "names") (param i32 i32) (result i32)
    (local $n i32)
    (loop $again
      (i32.store (i32.const 128) (local.tee $n (i32.add (local.get $n) (i32.const 1))))
      (call $count (i32.const 128) (i32.const 4) (i64.const 1))
      (br $again))
    (i32.const 0))

  (func (export "name_long") (param i32 i32) (result i32)
    (call $count (i32.const 0) (i32.const 129) (i64.const 1))
    (i32.const 0))

  (func (export "count_overflows") (param i32 i32) (result i32)
    (call $count (i32.const 16) (i32.const 1) (i64.const 9223372036854775807))
    (call $count (i32.const 16) (i32.const 1) (i64.const 9223372036854775807))
    (i32.const 0))

  ;; random bytes to a place outside of the memory: WASI says so with a number, which is returned
  (func (export "random_outside") (param i32 i32) (result i32)
    (call $random (i32.const -16) (i32.const 64)))

  ;; keys of 32 KiB without end, each another
  (func (export "keys") (param i32 i32) (result i32)
    (local $n i32)
    (loop $again
      (i32.store (i32.const 1024) (local.tee $n (i32.add (local.get $n) (i32.const 1))))
      (call $emit_i64 (i32.const 1024) (i32.const 32768) (i64.const 1))
      (br $again))
    (i32.const 0)))
