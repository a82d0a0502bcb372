package guest

import "unsafe"

//go:wasmimport pmr1 emit
func hostEmit(ptr unsafe.Pointer, size uint32)

//go:wasmimport pmr1 log
func hostLog(level uint32, ptr unsafe.Pointer, size uint32)

//go:wasmimport pmr1 count
func hostCount(ptr unsafe.Pointer, size uint32, delta int64)

//go:wasmimport pmr1 fail
func hostFail(ptr unsafe.Pointer, size uint32)

//go:wasmexport pmr_alloc
func pmrAlloc(size uint32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(alloc(size))) }

//go:wasmexport pmr_init
func pmrInit(_, size uint32) uint32 {
	begin(input[:size])
	return 0
}

//go:wasmexport pmr_end
func pmrEnd() uint32 {
	end()
	return 0
}
