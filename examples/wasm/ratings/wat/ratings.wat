;; ratings counts how often each rating was given: it emits the third field of a line with the i64 1. Reduce it with sum.
;; Fields are between :: or commas, as in the MovieLens files ratings.dat and ratings.csv:
;;
;;   1::1193::5::978300760
;;   1,296,5.0,1147880044
;;
;; Lines whose third field does not begin with a digit, as a header's, are counted as "lines without a rating".
;;
;; Memory: 16 text; 65536 input buffer, to the end of the memory, which grows with it.
(module
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (import "pmr1" "count" (func $count (param i32 i32 i64)))
  (memory (export "memory") 3 1024)
  (data (i32.const 16) "lines without a rating")
  (global $input i32 (i32.const 65536))

  ;; There is one input buffer, always at the same place.
  (func (export "pmr_alloc") (param $len i32) (result i32)
    (local $pages i32)
    (local.set $pages (i32.add (i32.const 2) (i32.shr_u (local.get $len) (i32.const 16))))
    (if (i32.gt_u (local.get $pages) (memory.size))
      (then
        (if (i32.eq (i32.const -1) (memory.grow (i32.sub (local.get $pages) (memory.size))))
          (then (return (i32.const 0))))))
    (global.get $input))

  ;; field returns the end of the field that begins at p: the next separator, or end.
  (func $field (param $p i32) (param $end i32) (result i32)
    (local $c i32)
    (block $found
      (loop $next
        (br_if $found (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $c (i32.load8_u (local.get $p)))
        (br_if $found (i32.eq (local.get $c) (i32.const 0x2c)))   ;; ,
        (br_if $found (i32.eq (local.get $c) (i32.const 0x3a)))   ;; :
        (local.set $p (i32.add (local.get $p) (i32.const 1)))
        (br $next)))
    (local.get $p))

  ;; after returns the place after the separator at p: one byte, or two if it is a colon with another behind it.
  (func $after (param $p i32) (param $end i32) (result i32)
    (if (i32.ge_u (local.get $p) (local.get $end)) (then (return (local.get $end))))
    (if (i32.eq (i32.load8_u (local.get $p)) (i32.const 0x3a))
      (then (if (i32.lt_u (i32.add (local.get $p) (i32.const 1)) (local.get $end))
        (then (if (i32.eq (i32.load8_u offset=1 (local.get $p)) (i32.const 0x3a))
          (then (return (i32.add (local.get $p) (i32.const 2)))))))))
    (i32.add (local.get $p) (i32.const 1)))

  (func $line (param $p i32) (param $end i32)
    (local $stop i32)
    (local.set $p (call $after (call $field (local.get $p) (local.get $end)) (local.get $end)))
    (local.set $p (call $after (call $field (local.get $p) (local.get $end)) (local.get $end)))
    (local.set $stop (call $field (local.get $p) (local.get $end)))
    (if (i32.lt_u (local.get $p) (local.get $stop))
      (then (if (i32.lt_u (i32.sub (i32.load8_u (local.get $p)) (i32.const 0x30)) (i32.const 10))
        (then
          (call $emit_i64 (local.get $p) (i32.sub (local.get $stop) (local.get $p)) (i64.const 1))
          (return)))))
    (call $count (i32.const 16) (i32.const 22) (i64.const 1)))

  ;; map takes a batch of frames: u32 flags, u32 klen, u32 vlen, key, value.
  (func (export "map") (param $p i32) (param $len i32) (result i32)
    (local $end i32) (local $value i32)
    (local.set $end (i32.add (local.get $p) (local.get $len)))
    (block $done
      (loop $frame
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $value (i32.add (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p))))
        (local.set $p (i32.add (local.get $value) (i32.load offset=8 (local.get $p))))
        (call $line (local.get $value) (local.get $p))
        (br $frame)))
    (i32.const 0)))
