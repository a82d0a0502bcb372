package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on stderr while something runs, if that is a terminal; else it is nothing.
type progress struct {
	bar *progressbar.ProgressBar
}

// isTerminal reports whether a stream is a terminal that can move its cursor.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// newProgress begins a bar; a total of -1 is not known.
func newProgress(stderr io.Writer, what string, total int64, bytes bool) *progress {
	if !isTerminal(stderr) {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

func (p *progress) add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n)
	}
}

func (p *progress) set(n int) {
	if p.bar != nil {
		_ = p.bar.Set(n)
	}
}

// tell says what goes on, and how far it is.
func (p *progress) tell(what string, n int) {
	if p.bar != nil {
		p.bar.Describe(what)
		_ = p.bar.Set(n)
	}
}

// clear takes the bar away, so that other lines can be written.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
		_ = p.bar.Clear()
	}
}
