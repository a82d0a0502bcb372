//go:build unix && !linux

package e2e

import "syscall"

// endWithTest has no means here to end a process together with a test that is killed.
func endWithTest() *syscall.SysProcAttr { return nil }
