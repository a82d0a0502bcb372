package main

import "fmt"

// row prints what a thing took over the corpus, and how fast that is beside another one.
func row(name string, c cost, bytes int64, beside string, ratio float64) {
	fmt.Printf("  %-28s %7.3f CPU s  %7.1f MB/s", name, c.cpu.Seconds(), rate(bytes, c.cpu))
	if beside != "" {
		fmt.Printf("   %6.2f times %s", ratio, beside)
	}
	fmt.Println()
}

// atLeast and atMost print a goal and whether it is reached.
func atLeast(what string, got, want float64) {
	fmt.Printf("  %-52s %8.2f   goal >= %-6.4g %s\n", what, got, want, verdict(got >= want))
}

func atMost(what string, got, want float64) {
	fmt.Printf("  %-52s %8.2f   goal <= %-6.4g %s\n", what, got, want, verdict(got <= want))
}

func verdict(ok bool) string {
	if ok {
		return "PASS"
	}
	return "short of the goal"
}

// times is how many times as fast as b a thing is that took a.
func times(a, b cost) float64 {
	if a.cpu <= 0 {
		return 0
	}
	return b.cpu.Seconds() / a.cpu.Seconds()
}
