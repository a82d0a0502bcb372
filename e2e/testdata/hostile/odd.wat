;; Functions that look dangerous and are allowed. Each must give its answer.
(module
  (import "pmr1" "emit_kv" (func $emit_kv (param i32 i32 i32 i32)))
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (import "pmr1" "log" (func $log (param i32 i32 i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 8)
  (table $table 1 funcref)
  (data (i32.const 16) "kilo")
  (data $passive "passive")

  (func (export "pmr_alloc") (param $n i32) (result i32)
    (if (result i32) (i32.gt_u (local.get $n) (i32.const 400000)) (then (i32.const 0)) (else (i32.const 65536))))

  ;; one buffer for a thousand keys: each is copied before emit returns
  (func (export "reuses") (param i32 i32) (result i32)
    (local $n i32)
    (loop $again
      (i32.store8 (i32.const 128) (i32.add (i32.const 65) (i32.and (local.get $n) (i32.const 15))))
      (i32.store8 (i32.const 129) (i32.add (i32.const 65) (i32.and (i32.shr_u (local.get $n) (i32.const 4)) (i32.const 15))))
      (i32.store8 (i32.const 130) (i32.add (i32.const 65) (i32.shr_u (local.get $n) (i32.const 8))))
      (call $emit_i64 (i32.const 128) (i32.const 3) (i64.const 1))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))
    (i32.const 0))

  ;; the memory moves between two pairs
  (func (export "grows") (param i32 i32) (result i32)
    (i32.store8 (i32.const 128) (i32.const 65))
    (call $emit_i64 (i32.const 128) (i32.const 1) (i64.const 1))
    (drop (memory.grow (i32.const 1)))
    (i32.store8 (i32.const 128) (i32.const 66))
    (call $emit_i64 (i32.const 128) (i32.const 1) (i64.const 1))
    (i32.const 0))

  ;; empty key and value; their pointers are outside of the memory
  (func (export "empty") (param i32 i32) (result i32)
    (call $emit_kv (i32.const -1) (i32.const 0) (i32.const -1) (i32.const 0))
    (i32.const 0))

  ;; the keys "a", "a\00" and "a\00b" are three
  (func (export "nuls") (param i32 i32) (result i32)
    (i32.store (i32.const 128) (i32.const 0x00620061))
    (call $emit_i64 (i32.const 128) (i32.const 1) (i64.const 1))
    (call $emit_i64 (i32.const 128) (i32.const 2) (i64.const 1))
    (call $emit_i64 (i32.const 128) (i32.const 3) (i64.const 1))
    (i32.const 0))

  ;; writes over what it was given
  (func (export "overwrites") (param $p i32) (param $n i32) (result i32)
    (memory.fill (local.get $p) (i32.const 88) (local.get $n))
    (call $emit_i64 (local.get $p) (i32.const 1) (i64.const 1))
    (i32.const 0))

  ;; all the memory that it can have, each page touched, and kept
  (func (export "hoards") (param i32 i32) (result i32)
    (local $at i32)
    (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (loop $touch
      (i32.store8 (local.get $at) (i32.const 1))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $touch (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
    (call $emit_i64 (i32.const 16) (i32.const 4) (i64.extend_i32_u (memory.size)))
    (i32.const 0))

  ;; a table as large as it can be
  (func (export "tables") (param i32 i32) (result i32)
    (loop $more (br_if $more (i32.ne (table.grow $table (ref.null func) (i32.const 1)) (i32.const -1))))
    (call $emit_i64 (i32.const 16) (i32.const 4) (i64.extend_i32_u (table.size $table)))
    (i32.const 0))

  ;; 500 rows of 1 KiB for a batch
  (func (export "rows") (param i32 i32) (result i32)
    (local $n i32)
    (memory.fill (i32.const 4096) (i32.const 120) (i32.const 1024))
    (loop $again
      (i32.store (i32.const 128) (local.get $n))
      (call $emit_kv (i32.const 16) (i32.const 4) (i32.const 4096) (i32.const 1024))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 500))))
    (i32.const 0))

  ;; a value of 100,000 bytes
  (func (export "value") (param i32 i32) (result i32)
    (memory.fill (i32.const 65536) (i32.const 118) (i32.const 100000))
    (call $emit_kv (i32.const 16) (i32.const 1) (i32.const 65536) (i32.const 100000))
    (i32.const 0))

  ;; one of 9 MiB, which is more than a message may have
  (func (export "huge") (param i32 i32) (result i32)
    (drop (memory.grow (i32.const 144)))
    (call $emit_kv (i32.const 16) (i32.const 1) (i32.const 524288) (i32.const 9437184))
    (i32.const 0))

  (func $two (result i32 i64) (i32.const 3) (i64.const 4))

  ;; bulk memory, several results, sign extension, vectors, saturating conversion
  (func (export "features") (param i32 i32) (result i32)
    (local $n i64)
    (local $m i32)
    (memory.init $passive (i32.const 128) (i32.const 0) (i32.const 7))
    (memory.copy (i32.const 256) (i32.const 128) (i32.const 7))
    (call $two)
    (local.set $n)
    (local.set $m)
    (local.set $n (i64.add (local.get $n) (i64.extend_i32_u (local.get $m))))
    (local.set $n (i64.add (local.get $n) (i64.extend8_s (i64.const 255))))
    (local.set $n (i64.add (local.get $n) (i64.trunc_sat_f64_s (f64.const nan))))
    (local.set $n (i64.add (local.get $n) (i64x2.extract_lane 1 (i64x2.splat (i64.const 10)))))
    (call $emit_i64 (i32.const 256) (i32.const 7) (local.get $n))
    (i32.const 0))

  ;; 1 MiB on stdout and 1,000 log lines for a batch
  (func (export "talks") (param i32 i32) (result i32)
    (local $n i32)
    (drop (memory.grow (i32.const 32)))
    (memory.fill (i32.const 524288) (i32.const 97) (i32.const 1048576))
    (i32.store (i32.const 128) (i32.const 524288))
    (i32.store (i32.const 132) (i32.const 1048576))
    (drop (call $write (i32.const 1) (i32.const 128) (i32.const 1) (i32.const 136)))
    (loop $again
      (call $log (i32.const 3) (i32.const 16) (i32.const 4))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))
    (call $emit_i64 (i32.const 16) (i32.const 4) (i64.const 1))
    (i32.const 0))

  ;; two million turns for a batch: slow, and allowed to be
  (func (export "works") (param i32 i32) (result i32)
    (local $n i32)
    (loop $again
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 2000000))))
    (call $emit_i64 (i32.const 16) (i32.const 4) (i64.const 1))
    (i32.const 0)))
