package child

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// setLimits bounds address space and processor time. Go reserves more than a gigabyte of address space that it
// never uses before a program begins, so what the process has by now is not counted.
func setLimits(t task) error {
	if t.CPUSeconds > 0 {
		// At the hard limit the system kills. Go would go on after the signal of the soft one.
		cpu := syscall.Rlimit{Cur: uint64(t.CPUSeconds), Max: uint64(t.CPUSeconds)}
		if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &cpu); err != nil {
			return fmt.Errorf("child: limit of processor time: %w", err)
		}
	}
	if t.Memory <= 0 {
		return nil
	}
	now, err := addressSpace()
	if err != nil {
		return err
	}
	space := syscall.Rlimit{Cur: now + uint64(t.Memory), Max: now + uint64(t.Memory)}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &space); err != nil {
		return fmt.Errorf("child: limit of address space: %w", err)
	}
	return nil
}

// addressSpace is what the process has reserved, in bytes.
func addressSpace() (uint64, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("child: size of the process: %w", err)
	}
	pages, _, _ := strings.Cut(string(statm), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("child: size of the process: %w", err)
	}
	return n * uint64(os.Getpagesize()), nil
}

// ownGroup puts the child into a process group of its own, and kills that as a whole.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
