;; A WASI command that writes to stdout for ever: a line that has no end.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "\00\00\01\00\00\00\01\00")
  (func (export "_start")
    (memory.fill (i32.const 65536) (i32.const 97) (i32.const 65536))
    (loop $again
      (drop (call $write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 128)))
      (br $again))))
