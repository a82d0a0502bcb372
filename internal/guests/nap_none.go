//go:build !naps

package guests

import "github.com/pinion-mr/pinion/pmr/node"

// napping leaves a program as it is. Builds with the tag naps have maps that can be told to take their time.
func napping(p node.Program, _ node.Task) node.Program { return p }
