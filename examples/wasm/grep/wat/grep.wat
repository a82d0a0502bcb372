;; grep emits the records whose value contains the parameter pattern, as plain bytes:
;;   submit run grep -p pattern=ERROR
;;
;; Memory: 16 texts; 1024 pattern, up to 4096 bytes; 65536 input buffer, to the end of the memory.
(module
  (import "pmr1" "emit" (func $emit (param i32 i32)))
  (import "pmr1" "fail" (func $fail (param i32 i32)))
  (memory (export "memory") 3 1024)
  (data (i32.const 16) "pattern")
  (data (i32.const 64) "the parameter pattern is missing or empty: give -p pattern=TEXT")
  (data (i32.const 192) "the parameter pattern is longer than 4096 bytes")
  (global $pattern i32 (i32.const 1024))
  (global $input i32 (i32.const 65536))
  (global $size (mut i32) (i32.const 0))        ;; of the pattern

  ;; There is one input buffer, always at the same place.
  (func (export "pmr_alloc") (param $len i32) (result i32)
    (local $end i64) (local $have i64)
    (local.set $end (i64.add (i64.extend_i32_u (local.get $len)) (i64.extend_i32_u (global.get $input))))
    (local.set $have (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)))
    (if (i64.gt_u (local.get $end) (local.get $have))
      (then
        (if (i64.gt_u (local.get $end) (i64.const 67108864)) (then (return (i32.const 0))))
        (if (i32.eq (i32.const -1)
              (memory.grow (i32.wrap_i64 (i64.shr_u
                (i64.add (i64.sub (local.get $end) (local.get $have)) (i64.const 65535)) (i64.const 16)))))
          (then (return (i32.const 0))))))
    (global.get $input))

  (func $equal (param $a i32) (param $b i32) (param $len i32) (result i32)
    (local $i i32)
    (loop $byte
      (if (i32.ge_u (local.get $i) (local.get $len)) (then (return (i32.const 1))))
      (if (i32.eq (i32.load8_u (i32.add (local.get $a) (local.get $i))) (i32.load8_u (i32.add (local.get $b) (local.get $i))))
        (then
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br $byte))))
    (i32.const 0))

  ;; pmr_init takes the parameters, as frames of name and value, and keeps a copy of the pattern.
  (func (export "pmr_init") (param $p i32) (param $len i32) (result i32)
    (local $end i32) (local $name i32) (local $value i32) (local $size i32)
    (global.set $size (i32.const 0))
    (local.set $end (i32.add (local.get $p) (local.get $len)))
    (block $done
      (loop $frame
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $name (i32.add (local.get $p) (i32.const 12)))
        (local.set $size (i32.load offset=8 (local.get $p)))
        (local.set $value (i32.add (local.get $name) (i32.load offset=4 (local.get $p))))
        (if (i32.eq (i32.load offset=4 (local.get $p)) (i32.const 7))
          (then (if (call $equal (local.get $name) (i32.const 16) (i32.const 7))
            (then
              (if (i32.gt_u (local.get $size) (i32.const 4096)) (then (call $fail (i32.const 192) (i32.const 47))))
              (memory.copy (global.get $pattern) (local.get $value) (local.get $size))
              (global.set $size (local.get $size))))))
        (local.set $p (i32.add (local.get $value) (local.get $size)))
        (br $frame)))
    (if (i32.eqz (global.get $size)) (then (call $fail (i32.const 64) (i32.const 63))))
    (i32.const 0))

  ;; contains reports whether the pattern is among the bytes from p to end.
  (func $contains (param $p i32) (param $end i32) (result i32)
    (local $first i32) (local $last i32)
    (if (i32.lt_u (i32.sub (local.get $end) (local.get $p)) (global.get $size)) (then (return (i32.const 0))))
    (local.set $first (i32.load8_u (global.get $pattern)))
    (local.set $last (i32.sub (local.get $end) (global.get $size)))
    (loop $at
      (if (i32.eq (i32.load8_u (local.get $p)) (local.get $first))
        (then (if (call $equal (local.get $p) (global.get $pattern) (global.get $size))
          (then (return (i32.const 1))))))
      (local.set $p (i32.add (local.get $p) (i32.const 1)))
      (br_if $at (i32.le_u (local.get $p) (local.get $last))))
    (i32.const 0))

  ;; map emits runs of frames that follow one another straight from the input.
  (func (export "map") (param $p i32) (param $len i32) (result i32)
    (local $end i32) (local $value i32) (local $next i32) (local $run i32)
    (local.set $end (i32.add (local.get $p) (local.get $len)))
    (local.set $run (local.get $p))
    (block $done
      (loop $frame
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $value (i32.add (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p))))
        (local.set $next (i32.add (local.get $value) (i32.load offset=8 (local.get $p))))
        (if (i32.eqz (call $contains (local.get $value) (local.get $next)))
          (then
            (call $run (local.get $run) (local.get $p))
            (local.set $run (local.get $next))))
        (local.set $p (local.get $next))
        (br $frame)))
    (call $run (local.get $run) (local.get $p))
    (i32.const 0))

  (func $run (param $p i32) (param $end i32)
    (if (i32.gt_u (local.get $end) (local.get $p))
      (then (call $emit (local.get $p) (i32.sub (local.get $end) (local.get $p)))))))
