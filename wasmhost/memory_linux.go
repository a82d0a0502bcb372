package wasmhost

import (
	"context"
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// withMemory has the memory of an instance that is made with the context mapped from the system, as large as it
// may become: growing it then copies nothing, and closing the instance gives its pages back at once, where Go's
// heap would keep them until its garbage is collected. Pages that the guest has not touched cost nothing.
//
// wazero frees the memory of instances that it closes; free is for one that it could not make.
func withMemory(ctx context.Context) (with context.Context, free func()) {
	var made experimental.LinearMemory = &heapMemory{}
	with = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
		b, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
		if err == nil {
			made = &mappedMemory{b}
		} // else there is no range as large, or none is wanted: the heap will do
		return made
	}))
	return with, func() { made.Free() }
}

// mappedMemory is a range that is mapped as a whole.
type mappedMemory struct{ b []byte }

// Reallocate never moves the memory.
func (m *mappedMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.b)) {
		return nil
	}
	return m.b[:size:len(m.b)]
}

// Free unmaps the range. No view of it may be used any more.
func (m *mappedMemory) Free() {
	_ = syscall.Munmap(m.b) // fails only for a range that is not mapped
	m.b = nil
}

// heapMemory is a memory on Go's heap.
type heapMemory struct{ b []byte }

// Reallocate makes the memory larger.
func (m *heapMemory) Reallocate(size uint64) []byte {
	m.b = append(m.b, make([]byte, size-uint64(len(m.b)))...)
	return m.b
}

// Free leaves the memory to the garbage collector.
func (m *heapMemory) Free() { m.b = nil }
