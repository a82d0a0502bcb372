//go:build unix

package bus

import (
	"os"
	"syscall"
)

// flock takes the file for as long as it is open; the system frees it when the process dies.
func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
