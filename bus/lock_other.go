//go:build !unix

package bus

import "os"

// flock does nothing on systems without it: there the operator sees to it that a folder has one server.
func flock(*os.File) error { return nil }
