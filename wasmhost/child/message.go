package child

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxMessage bounds the lines that parent and child exchange.
const maxMessage = 16 << 10

// task is the first line that the child reads. Size bytes of the module follow it.
type task struct {
	CacheDir    string `json:"cache_dir"`
	MemoryPages uint32 `json:"memory_pages"`
	Memory      int64  `json:"memory"`      // bytes of address space, beyond what the process begins with
	CPUSeconds  int64  `json:"cpu_seconds"` // of processor time
	Size        int    `json:"size"`        // of the module
}

// answer is the line that the child writes.
type answer struct {
	OK       bool   `json:"ok"`
	Error    string `json:"error,omitempty"`     // what the compiler found wrong
	Internal bool   `json:"internal,omitempty"`  // it is not the module's fault
	NoMemory bool   `json:"no_memory,omitempty"` // the system refused more
}

func writeMessage(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("child: %w", err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// readMessage reads one line.
func readMessage(r *bufio.Reader, v any) error {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return io.EOF
	}
	if err != nil {
		return fmt.Errorf("child: message: %w", err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("child: message: %w", err)
	}
	return nil
}
