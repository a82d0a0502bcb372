;; Counts the words of each record: emits each word, between spaces, with the i64 1.
;;
;; Memory: 65536 the buffer for batches of records, to the end of the memory, which grows with it.
(module
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (memory (export "memory") 2)

  ;; pmr_alloc gives the host room for len bytes. It is always the same place.
  (func (export "pmr_alloc") (param $len i32) (result i32)
    (local $pages i32)
    (local.set $pages (i32.add (i32.const 2) (i32.shr_u (local.get $len) (i32.const 16))))
    (if (i32.gt_u (local.get $pages) (memory.size))
      (then
        (if (i32.eq (i32.const -1) (memory.grow (i32.sub (local.get $pages) (memory.size))))
          (then (return (i32.const 0))))))   ;; there is no more
    (i32.const 65536))

  ;; ends tells whether no word goes on at p: it is the end, or a space, tab or the like.
  (func $ends (param $p i32) (param $end i32) (result i32)
    (if (i32.ge_u (local.get $p) (local.get $end)) (then (return (i32.const 1))))
    (i32.le_u (i32.load8_u (local.get $p)) (i32.const 32)))

  ;; words emits the words from p to end.
  (func $words (param $p i32) (param $end i32)
    (local $begin i32)
    (local.set $begin (local.get $p))
    (loop $next
      (if (call $ends (local.get $p) (local.get $end))
        (then
          (if (i32.lt_u (local.get $begin) (local.get $p))
            (then (call $emit_i64 (local.get $begin) (i32.sub (local.get $p) (local.get $begin)) (i64.const 1))))
          (local.set $begin (i32.add (local.get $p) (i32.const 1)))))
      (local.set $p (i32.add (local.get $p) (i32.const 1)))
      (br_if $next (i32.le_u (local.get $p) (local.get $end)))))

  ;; map takes a batch of records, each as u32 flags, u32 length of the key, u32 length of the value, key, value.
  (func (export "map") (param $p i32) (param $len i32) (result i32)
    (local $end i32) (local $value i32)
    (local.set $end (i32.add (local.get $p) (local.get $len)))
    (loop $record
      (if (i32.lt_u (local.get $p) (local.get $end))
        (then
          (local.set $value (i32.add (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p))))
          (local.set $p (i32.add (local.get $value) (i32.load offset=8 (local.get $p))))
          (call $words (local.get $value) (local.get $p))
          (br $record))))
    (i32.const 0)))
