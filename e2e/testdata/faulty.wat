;; Functions for tests of what happens when a guest fails or takes long. A batch holds frames of u32 flags,
;; u32 klen, u32 vlen, key, value. All emit the pair "seen", 1 for each record.
(module
  (import "pmr1" "emit_i64" (func $emit (param i32 i32 i64)))
  (memory (export "memory") 8)
  (data (i32.const 16) "seen")

  (func (export "pmr_alloc") (param $n i32) (result i32)
    (if (result i32) (i32.gt_u (local.get $n) (i32.const 400000)) (then (i32.const 0)) (else (i32.const 65536))))

  ;; traps at a record whose value begins with "!"
  (func (export "map") (param $p i32) (param $n i32) (result i32)
    (local $end i32)
    (local $value i32)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (loop $next
      (if (i32.lt_u (local.get $p) (local.get $end))
        (then
          (local.set $value (i32.add (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p))))
          (if (i32.load offset=8 (local.get $p))
            (then (if (i32.eq (i32.load8_u (local.get $value)) (i32.const 33)) (then unreachable))))
          (call $emit (i32.const 16) (i32.const 4) (i64.const 1))
          (local.set $p (i32.add (local.get $value) (i32.load offset=8 (local.get $p))))
          (br $next))))
    (i32.const 0))

  ;; counts to 20 million at each record
  (func (export "slow") (param $p i32) (param $n i32) (result i32)
    (local $end i32)
    (local $i i32)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (loop $next
      (if (i32.lt_u (local.get $p) (local.get $end))
        (then
          (local.set $i (i32.const 20000000))
          (loop $count (br_if $count (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
          (call $emit (i32.const 16) (i32.const 4) (i64.const 1))
          (local.set $p (i32.add (i32.add (i32.add (local.get $p) (i32.const 12))
            (i32.load offset=4 (local.get $p))) (i32.load offset=8 (local.get $p))))
          (br $next))))
    (i32.const 0)))
