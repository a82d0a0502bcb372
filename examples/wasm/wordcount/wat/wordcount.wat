;; wordcount splits the values of records at ASCII white space (space, \t \n \v \f \r) and emits each
;; word with the i64 1. Reduce it with sum.
;;
;; Memory: 1024 output block of frames; 196608 input buffer, to the end of the memory, which grows with it.
(module
  (import "pmr1" "emit" (func $emit (param i32 i32)))
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (memory (export "memory") 5 1024)
  (global $begin i32 (i32.const 1024))          ;; of the output block
  (global $limit i32 (i32.const 190000))        ;; where it is full, with room for what copies write beyond
  (global $input i32 (i32.const 196608))
  (global $slack i32 (i32.const 16))            ;; copies may read so far beyond the input
  (global $out (mut i32) (i32.const 1024))      ;; end of what is in the output block

  ;; There is one input buffer, always at the same place.
  (func (export "pmr_alloc") (param $len i32) (result i32)
    (local $end i64) (local $have i64)
    (local.set $end (i64.add (i64.extend_i32_u (local.get $len))
      (i64.extend_i32_u (i32.add (global.get $input) (global.get $slack)))))
    (local.set $have (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)))
    (if (i64.gt_u (local.get $end) (local.get $have))
      (then
        (if (i64.gt_u (local.get $end) (i64.const 67108864)) (then (return (i32.const 0))))
        (if (i32.eq (i32.const -1)
              (memory.grow (i32.wrap_i64 (i64.shr_u
                (i64.add (i64.sub (local.get $end) (local.get $have)) (i64.const 65535)) (i64.const 16)))))
          (then (return (i32.const 0))))))
    (global.get $input))

  (func $flush
    (if (i32.gt_u (global.get $out) (global.get $begin))
      (then
        (call $emit (global.get $begin) (i32.sub (global.get $out) (global.get $begin)))
        (global.set $out (global.get $begin)))))

  ;; word appends the frame (flags 4, word, 1) to the output block.
  (func $word (param $p i32) (param $len i32)
    (local $o i32)
    ;; A word that no key can hold goes to the host as it is, which says so.
    (if (i32.gt_u (local.get $len) (i32.const 65535))
      (then (call $emit_i64 (local.get $p) (local.get $len) (i64.const 1)) (return)))
    (if (i32.gt_u (i32.add (global.get $out) (i32.add (local.get $len) (i32.const 20))) (global.get $limit))
      (then (call $flush)))
    (local.set $o (global.get $out))
    (i32.store (local.get $o) (i32.const 4))
    (i32.store offset=4 (local.get $o) (local.get $len))
    (i32.store offset=8 (local.get $o) (i32.const 8))
    (local.set $o (i32.add (local.get $o) (i32.const 12)))
    (if (i32.le_u (local.get $len) (i32.const 16))
      (then
        (i64.store (local.get $o) (i64.load (local.get $p)))
        (i64.store offset=8 (local.get $o) (i64.load offset=8 (local.get $p))))
      (else (memory.copy (local.get $o) (local.get $p) (local.get $len))))
    (local.set $o (i32.add (local.get $o) (local.get $len)))
    (i64.store (local.get $o) (i64.const 1))
    (global.set $out (i32.add (local.get $o) (i32.const 8))))

  ;; spaces sets the high bit of each byte of the result where the byte of x is white space: 32, or 9 to 13.
  ;; No addition carries from one byte into the next, so each bit is exact.
  (func $spaces (param $x i64) (result i64)
    (local $low i64)
    (local.set $low (i64.and (local.get $x) (i64.const 0x7f7f7f7f7f7f7f7f)))
    (i64.and
      (i64.and (i64.const 0x8080808080808080) (i64.xor (local.get $x) (i64.const -1)))
      (i64.or
        (i64.xor (i64.const -1)   ;; the low bits differ from 32 in none
          (i64.add (i64.xor (local.get $low) (i64.const 0x2020202020202020)) (i64.const 0x7f7f7f7f7f7f7f7f)))
        (i64.and                  ;; at least 9, and not at least 14
          (i64.add (local.get $low) (i64.const 0x7777777777777777))
          (i64.xor (i64.const -1) (i64.add (local.get $low) (i64.const 0x7272727272727272)))))))

  ;; words splits the bytes from p to end, eight at a time.
  (func $words (param $p i32) (param $end i32)
    (local $begin i32) (local $found i64)
    (loop $next
      (block $word
        (loop $blank
          (if (i32.ge_u (local.get $p) (local.get $end)) (then (return)))
          (local.set $found (i64.xor (call $spaces (i64.load (local.get $p))) (i64.const 0x8080808080808080)))
          (br_if $word (i64.ne (local.get $found) (i64.const 0)))
          (local.set $p (i32.add (local.get $p) (i32.const 8)))
          (br $blank)))
      (local.set $p (i32.add (local.get $p) (i32.wrap_i64 (i64.shr_u (i64.ctz (local.get $found)) (i64.const 3)))))
      (if (i32.ge_u (local.get $p) (local.get $end)) (then (return)))
      (local.set $begin (local.get $p))
      (block $over
        (loop $letters
          (local.set $found (call $spaces (i64.load (local.get $p))))
          (br_if $over (i64.ne (local.get $found) (i64.const 0)))
          (local.set $p (i32.add (local.get $p) (i32.const 8)))
          (br_if $letters (i32.lt_u (local.get $p) (local.get $end)))))
      ;; Without white space found, ctz is 64: p goes beyond the end, where it is set to the end.
      (local.set $p (i32.add (local.get $p) (i32.wrap_i64 (i64.shr_u (i64.ctz (local.get $found)) (i64.const 3)))))
      (if (i32.gt_u (local.get $p) (local.get $end)) (then (local.set $p (local.get $end))))
      (call $word (local.get $begin) (i32.sub (local.get $p) (local.get $begin)))
      (br $next)))

  ;; map takes a batch of frames: u32 flags, u32 klen, u32 vlen, key, value.
  (func (export "map") (param $p i32) (param $len i32) (result i32)
    (local $end i32) (local $value i32)
    (local.set $end (i32.add (local.get $p) (local.get $len)))
    (block $done
      (loop $frame
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $value (i32.add (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p))))
        (local.set $p (i32.add (local.get $value) (i32.load offset=8 (local.get $p))))
        (call $words (local.get $value) (local.get $p))
        (br $frame)))
    (call $flush)
    (i32.const 0)))
