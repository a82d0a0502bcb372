;; Functions that do not come to an end. Each must be stopped when the job's time is over: loops and recursion,
;; instructions that do much at once, and floods of calls of the host.
(module
  (import "pmr1" "emit" (func $emit (param i32 i32)))
  (import "pmr1" "emit_kv" (func $emit_kv (param i32 i32 i32 i32)))
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (import "pmr1" "log" (func $log (param i32 i32 i32)))
  (import "pmr1" "count" (func $count (param i32 i32 i64)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (memory (export "memory") 8)
  (table $table 1 funcref)
  (data (i32.const 16) "k")

  (func (export "pmr_alloc") (param $n i32) (result i32)
    (if (result i32) (i32.gt_u (local.get $n) (i32.const 400000)) (then (i32.const 0)) (else (i32.const 65536))))

  ;; makes the memory as large as it may be, and returns its size in bytes
  (func $everything (result i32)
    (loop $more (br_if $more (i32.ne (memory.grow (i32.const 64)) (i32.const -1))))
    (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (i32.mul (memory.size) (i32.const 65536)))

  ;; emits one pair, for a combine or reduce to have something to do
  (func (export "map") (param i32 i32) (result i32)
    (call $emit_i64 (i32.const 16) (i32.const 1) (i64.const 1))
    (i32.const 0))

  (func (export "forever") (param i32 i32) (result i32)
    (loop $again (br $again))
    (i32.const 0))

  (func $fib (param $n i32) (result i32)
    (if (result i32) (i32.lt_u (local.get $n) (i32.const 2))
      (then (local.get $n))
      (else (i32.add
        (call $fib (i32.sub (local.get $n) (i32.const 1)))
        (call $fib (i32.sub (local.get $n) (i32.const 2)))))))

  (func (export "fib") (param i32 i32) (result i32)
    (i32.and (call $fib (i32.const 60)) (i32.const 0)))

  (func (export "branches") (param $p i32) (param $n i32) (result i32)
    (loop $a
      (loop $b
        (loop $c
          (local.set $p (i32.add (local.get $p) (i32.const 1)))
          (br_table $a $b $c $c $b $a (i32.and (local.get $p) (i32.const 7))))))
    (i32.const 0))

  (func (export "fills") (param i32 i32) (result i32)
    (local $all i32)
    (local.set $all (call $everything))
    (loop $again
      (memory.fill (i32.const 0) (i32.const 88) (local.get $all))
      (br $again))
    (i32.const 0))

  (func (export "copies") (param i32 i32) (result i32)
    (local $half i32)
    (local.set $half (i32.div_u (call $everything) (i32.const 2)))
    (loop $again
      (memory.copy (i32.const 0) (local.get $half) (local.get $half))
      (br $again))
    (i32.const 0))

  (func (export "grows_memory") (param i32 i32) (result i32)
    (loop $again
      (drop (memory.grow (i32.const 1)))
      (br $again))
    (i32.const 0))

  (func (export "grows_table") (param i32 i32) (result i32)
    (loop $again
      (drop (table.grow $table (ref.null func) (i32.const 1)))
      (br $again))
    (i32.const 0))

  (func (export "randoms") (param i32 i32) (result i32)
    (local $all i32)
    (local.set $all (call $everything))
    (loop $again
      (drop (call $random (i32.const 0) (local.get $all)))
      (br $again))
    (i32.const 0))

  ;; a million pieces of 4 KiB each, written to stdout at once
  (func (export "writes") (param i32 i32) (result i32)
    (local $piece i32)
    (drop (call $everything))
    (local.set $piece (i32.const 1048576))
    (loop $more
      (i32.store (local.get $piece) (i32.const 65536))
      (i32.store offset=4 (local.get $piece) (i32.const 4096))
      (local.set $piece (i32.add (local.get $piece) (i32.const 8)))
      (br_if $more (i32.lt_u (local.get $piece) (i32.const 9437184))))
    (loop $again
      (drop (call $write (i32.const 1) (i32.const 1048576) (i32.const 1048576) (i32.const 8)))
      (br $again))
    (i32.const 0))

  ;; one byte at a time to stderr
  (func (export "letters") (param i32 i32) (result i32)
    (i32.store (i32.const 32) (i32.const 16))
    (i32.store (i32.const 36) (i32.const 1))
    (loop $again
      (drop (call $write (i32.const 2) (i32.const 32) (i32.const 1) (i32.const 8)))
      (br $again))
    (i32.const 0))

  (func (export "reads") (param i32 i32) (result i32)
    (i32.store (i32.const 32) (i32.const 65536))
    (i32.store (i32.const 36) (i32.const 65536))
    (loop $again
      (drop (call $read (i32.const 0) (i32.const 32) (i32.const 1) (i32.const 8)))
      (br $again))
    (i32.const 0))

  ;; half a million clocks to wait for, all of them due
  (func (export "polls") (param i32 i32) (result i32)
    (drop (call $everything))
    (loop $again
      (drop (call $poll (i32.const 1048576) (i32.const 29360128) (i32.const 524288) (i32.const 8)))
      (br $again))
    (i32.const 0))

  ;; a clock that is due in an hour
  (func (export "sleeps") (param i32 i32) (result i32)
    (i32.store (i32.const 1040) (i32.const 1))
    (i64.store (i32.const 1048) (i64.const 3600000000000))
    (loop $again
      (drop (call $poll (i32.const 1024) (i32.const 2048) (i32.const 1) (i32.const 8)))
      (br $again))
    (i32.const 0))

  (func (export "asks") (param i32 i32) (result i32)
    (loop $again
      (drop (call $environ_sizes (i32.const 32) (i32.const 36)))
      (drop (call $environ (i32.const 1024) (i32.const 2048)))
      (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 40)))
      (drop (call $yield))
      (br $again))
    (i32.const 0))

  (func (export "logs") (param i32 i32) (result i32)
    (memory.fill (i32.const 65536) (i32.const 120) (i32.const 4096))
    (loop $again
      (call $log (i32.const 3) (i32.const 65536) (i32.const 4096))
      (br $again))
    (i32.const 0))

  (func (export "counts") (param i32 i32) (result i32)
    (loop $again
      (call $count (i32.const 16) (i32.const 1) (i64.const 1))
      (br $again))
    (i32.const 0))

  ;; pairs of nothing: they pass no limit of bytes
  (func (export "emits") (param i32 i32) (result i32)
    (loop $again
      (call $emit_kv (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
      (br $again))
    (i32.const 0))

  ;; the whole memory as one block of frames: millions of empty pairs for each call
  (func (export "blocks") (param i32 i32) (result i32)
    (local $all i32)
    (local.set $all (call $everything))
    (memory.fill (i32.const 0) (i32.const 0) (local.get $all))
    (loop $again
      (call $emit (i32.const 0) (i32.mul (i32.div_u (local.get $all) (i32.const 12)) (i32.const 12)))
      (br $again))
    (i32.const 0)))
