package reduce

import (
	"strings"

	"github.com/pinion-mr/pinion/api"
)

// Reducer says how the pairs of a key become its result. Make one with [Parse].
type Reducer struct {
	name     string
	function string
	column   func(*keys) column
}

// families lists the built-in reducers as messages do.
var families = []struct {
	name   string
	column func(*keys) column
}{
	{"sum", newSumColumn},
	{"count", newCountColumn},
	{"min", newMinColumn},
	{"max", newMaxColumn},
	{"none", newListColumn},
}

const (
	moduleReduce = "module"
	modulePrefix = "module:"
	maxFunction  = 128
)

// Parse reads the name of a reducer as a job gives it: sum, count, min, max, none, module (the module's
// export reduce) or module:NAME. Any other name is BAD_REQUEST.
func Parse(name string) (Reducer, error) {
	if function, ok := strings.CutPrefix(name, modulePrefix); ok {
		if function == "" || len(function) > maxFunction {
			return Reducer{}, api.Errorf(api.CodeBadRequest, "reduce %.64q names a function of %d bytes", name, len(function)).
				WithHint("write module:NAME with a name of 1 to %d bytes, or module for the module's export reduce", maxFunction)
		}
		return Reducer{name: name, function: function, column: newListColumn}, nil
	}
	if name == moduleReduce {
		return Reducer{name: name, function: "reduce", column: newListColumn}, nil
	}
	known := make([]string, 0, len(families)+2)
	for _, f := range families {
		if f.name == name {
			return Reducer{name: name, column: f.column}, nil
		}
		known = append(known, f.name)
	}
	known = append(known, moduleReduce, modulePrefix+"NAME")
	err := api.Errorf(api.CodeBadRequest, "there is no reduce %.64q", name)
	if near := api.Nearest(name, known); near != "" {
		return Reducer{}, err.WithHint("did you mean %s? There are %s", near, strings.Join(known, ", "))
	}
	return Reducer{}, err.WithHint("there are %s", strings.Join(known, ", "))
}

// String is the name that Parse was given.
func (r Reducer) String() string { return r.name }

// Numeric reports whether the reducer works on numbers by their value, so that text which is a number is better
// read as one.
func (r Reducer) Numeric() bool { return r.name == "sum" || r.name == "min" || r.name == "max" }

// Function is the module's function that has to reduce what a table of this reducer collects; empty for
// the built-in reducers.
func (r Reducer) Function() string { return r.function }
