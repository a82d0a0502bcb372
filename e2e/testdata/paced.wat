;; Functions that take as long as a job's params say. The param "map" is how many million turns of a loop each call
;; of map takes, "reduce" the same of each call of reduce, and "large" how many bytes the value has that large emits.
;; Map emits the pair "records", 1 for each record, and reduce adds up.
(module
  (import "pmr1" "emit_i64" (func $emit_i64 (param i32 i32 i64)))
  (import "pmr1" "emit_kv" (func $emit_kv (param i32 i32 i32 i32)))
  (memory (export "memory") 200)
  (data (i32.const 16) "records")
  (global $map (mut i32) (i32.const 0))
  (global $reduce (mut i32) (i32.const 0))
  (global $large (mut i32) (i32.const 0))
  (global $sum (mut i64) (i64.const 0))

  (func (export "pmr_alloc") (param $n i32) (result i32)
    (if (result i32) (i32.gt_u (local.get $n) (i32.const 12000000)) (then (i32.const 0)) (else (i32.const 65536))))

  ;; the address of a frame's value, and of the next frame
  (func $value (param $p i32) (result i32)
    (i32.add (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p))))
  (func $next (param $p i32) (result i32)
    (i32.add (call $value (local.get $p)) (i32.load offset=8 (local.get $p))))

  ;; reads the decimal number that a frame's value is
  (func $number (param $p i32) (result i32)
    (local $at i32)
    (local $n i32)
    (local.set $at (call $value (local.get $p)))
    (block $end
      (loop $digit
        (br_if $end (i32.ge_u (local.get $at) (call $next (local.get $p))))
        (local.set $n (i32.add (i32.mul (local.get $n) (i32.const 10)) (i32.sub (i32.load8_u (local.get $at)) (i32.const 48))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $digit)))
    (local.get $n))

  (func (export "pmr_init") (param $p i32) (param $n i32) (result i32)
    (local $end i32)
    (local $first i32)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (block $done
      (loop $param
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (local.set $first (i32.load8_u offset=12 (local.get $p)))
        (if (i32.eq (local.get $first) (i32.const 109)) (then (global.set $map (call $number (local.get $p)))))
        (if (i32.eq (local.get $first) (i32.const 114)) (then (global.set $reduce (call $number (local.get $p)))))
        (if (i32.eq (local.get $first) (i32.const 108)) (then (global.set $large (call $number (local.get $p)))))
        (local.set $p (call $next (local.get $p)))
        (br $param)))
    (i32.const 0))

  (func $spin (param $millions i32)
    (local $i i32)
    (loop $million
      (if (local.get $millions)
        (then
          (local.set $i (i32.const 1000000))
          (loop $turn (br_if $turn (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
          (local.set $millions (i32.sub (local.get $millions) (i32.const 1)))
          (br $million)))))

  (func (export "map") (param $p i32) (param $n i32) (result i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (call $spin (global.get $map))
    (block $done
      (loop $record
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (call $emit_i64 (i32.const 16) (i32.const 7) (i64.const 1))
        (local.set $p (call $next (local.get $p)))
        (br $record)))
    (i32.const 0))

  (func (export "reduce") (param $p i32) (param $n i32) (result i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $p) (local.get $n)))
    (call $spin (global.get $reduce))
    (block $done
      (loop $pair
        (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
        (if (i32.and (i32.load (local.get $p)) (i32.const 1)) (then (global.set $sum (i64.const 0))))
        (global.set $sum (i64.add (global.get $sum) (i64.load (call $value (local.get $p)))))
        (if (i32.and (i32.load (local.get $p)) (i32.const 2))
          (then (call $emit_i64 (i32.add (local.get $p) (i32.const 12)) (i32.load offset=4 (local.get $p)) (global.get $sum))))
        (local.set $p (call $next (local.get $p)))
        (br $pair)))
    (i32.const 0))

  ;; emits one large value for each batch
  (func (export "large") (param $p i32) (param $n i32) (result i32)
    (call $emit_kv (i32.const 16) (i32.const 7) (i32.const 65536) (global.get $large))
    (i32.const 0)))
