;; The control: emits "k" with the number of records of each batch. A sum of it is the number of records.
(module
  (import "pmr1" "emit_i64" (func $emit (param i32 i32 i64)))
  (memory (export "memory") 8)
  (data (i32.const 16) "k")

  (func (export "pmr_alloc") (param $n i32) (result i32)
    (if (result i32) (i32.gt_u (local.get $n) (i32.const 400000)) (then (i32.const 0)) (else (i32.const 65536))))

  (func (export "map") (param $p i32) (param $n i32) (result i32)
    (local $end i32)
    (local $records i64)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (loop $next
      (if (i32.lt_u (local.get $p) (local.get $end))
        (then
          (local.set $records (i64.add (local.get $records) (i64.const 1)))
          (local.set $p (i32.add (i32.add (local.get $p) (i32.const 12))
            (i32.add (i32.load offset=4 (local.get $p)) (i32.load offset=8 (local.get $p)))))
          (br $next))))
    (call $emit (i32.const 16) (i32.const 1) (local.get $records))
    (i32.const 0)))
