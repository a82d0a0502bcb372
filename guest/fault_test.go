//go:build unix

package guest

import (
	"runtime/debug"
	"syscall"
	"testing"
)

// What lies at the end of memory is read, and nothing behind it: in WebAssembly that is a trap.
func TestEndOfMemory(t *testing.T) {
	page := syscall.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = syscall.Munmap(memory) }()
	if err := syscall.Mprotect(memory[page:], syscall.PROT_NONE); err != nil {
		t.Skip(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for n := range 200 {
		text := memory[page-n : page]
		for i := range text {
			text[i] = "word "[i%5]
		}
		var counter Counter
		rows, err := Try(func(ptr, size uint32) uint32 {
			for range Words(text) {
				Count("words", 1)
			}
			counter.Add(text, 1)
			EmitInt(text, 1)
			Emit(text, text)
			return Flush()
		}, nil, "")
		if err != nil || len(rows) != 3 {
			t.Errorf("%d bytes: %q, %v", n, rows, err)
		}
	}
}
