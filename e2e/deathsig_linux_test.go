package e2e

import "syscall"

// endWithTest has the kernel kill a process when the test's process is gone, however that ended.
func endWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
