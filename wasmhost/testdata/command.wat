;; A WASI program. What it does depends on the first letter of its argument.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 4)
  (data (i32.const 4096) "k\t1\n")
  (data (i32.const 4112) "zz\t1\n")
  (data (i32.const 4128) "reporter:counter:words,long ones,5\nreporter:counter:words,long ones,-2\nreporter:status:busy\nreporter:counter:bad\nplain")
  (data (i32.const 4352) "reading\nlast words\n")

  (func $write (param $fd i32) (param $p i32) (param $n i32)
    (i32.store (i32.const 0) (local.get $p))
    (i32.store (i32.const 4) (local.get $n))
    (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $read (param $p i32) (param $n i32) (result i32)
    (i32.store (i32.const 0) (local.get $p))
    (i32.store (i32.const 4) (local.get $n))
    (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.load (i32.const 8)))
  ;; cat copies its input, in steps of so many bytes.
  (func $cat (param $step i32)
    (local $n i32)
    (loop $more
      (if (local.tee $n (call $read (i32.const 65536) (local.get $step)))
        (then (call $write (i32.const 1) (i32.const 65536) (local.get $n)) (br $more)))))

  (func (export "_start")
    (local $what i32) (local $n i32)
    (drop (call $args_sizes (i32.const 16) (i32.const 20)))
    (drop (call $args (i32.const 64) (i32.const 1024)))
    (local.set $what (i32.load8_u (i32.load (i32.const 68))))
    (if (i32.eq (local.get $what) (i32.const 0x6d)) (then (call $cat (i32.const 131072))))         ;; m
    (if (i32.eq (local.get $what) (i32.const 0x72)) (then (call $cat (i32.const 131072))))         ;; r
    (if (i32.eq (local.get $what) (i32.const 0x62)) (then (call $cat (i32.const 1))))              ;; b: byte by byte
    (if (i32.eq (local.get $what) (i32.const 0x61))                                                ;; a: arguments
      (then (call $write (i32.const 1) (i32.const 1024) (i32.load (i32.const 20)))))
    (if (i32.eq (local.get $what) (i32.const 0x76)) (then                                          ;; v: variables
      (drop (call $environ_sizes (i32.const 16) (i32.const 20)))
      (drop (call $environ (i32.const 64) (i32.const 1024)))
      (call $write (i32.const 1) (i32.const 1024) (i32.load (i32.const 20)))))
    (if (i32.eq (local.get $what) (i32.const 0x69))                                                ;; i: ignores its input
      (then (call $write (i32.const 1) (i32.const 4096) (i32.const 4))))
    (if (i32.eq (local.get $what) (i32.const 0x6e))                                                ;; n: no newline
      (then (call $write (i32.const 1) (i32.const 4096) (i32.const 3))))
    (if (i32.eq (local.get $what) (i32.const 0x6f))                                                ;; o: another key
      (then (call $cat (i32.const 131072)) (call $write (i32.const 1) (i32.const 4112) (i32.const 5))))
    (if (i32.eq (local.get $what) (i32.const 0x73))                                                ;; s: on stderr
      (then (call $write (i32.const 2) (i32.const 4128) (i32.const 118))))
    (if (i32.eq (local.get $what) (i32.const 0x7a)) (then                                          ;; z: exits with 0
      (call $write (i32.const 1) (i32.const 4096) (i32.const 4)) (call $exit (i32.const 0)) unreachable))
    (if (i32.eq (local.get $what) (i32.const 0x65)) (then                                          ;; e: reads, exits with 3
      (drop (call $read (i32.const 65536) (i32.const 1)))
      (call $write (i32.const 2) (i32.const 4352) (i32.const 19)) (call $exit (i32.const 3))))
    (if (i32.eq (local.get $what) (i32.const 0x74)) (then                                          ;; t: reads twice, traps
      (drop (call $read (i32.const 65536) (i32.const 131072)))
      (drop (call $read (i32.const 65536) (i32.const 131072)))
      unreachable))
    (if (i32.eq (local.get $what) (i32.const 0x6c)) (then (loop $l (br $l))))                      ;; l: loops
    (if (i32.eq (local.get $what) (i32.const 0x78)) (then                                          ;; x: one long line
      (memory.fill (i32.const 65536) (i32.const 97) (i32.const 131072))
      (loop $l (call $write (i32.const 1) (i32.const 65536) (i32.const 131072)) (br $l))))
    (if (i32.eq (local.get $what) (i32.const 0x77)) (then                                          ;; w: random bytes
      (drop (call $random (i32.const 65536) (i32.const 8)))
      (call $write (i32.const 1) (i32.const 65536) (i32.const 8))))
    (if (i32.eq (local.get $what) (i32.const 0x66))                                                ;; f: half a frame
      (then (call $write (i32.const 1) (i32.const 4096) (i32.const 4)))))
)
