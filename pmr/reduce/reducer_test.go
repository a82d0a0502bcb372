package reduce

import (
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

func TestParse(t *testing.T) {
	for name, function := range map[string]string{
		"sum": "", "count": "", "min": "", "max": "", "none": "",
		"module": "reduce", "module:top": "top",
	} {
		r, err := Parse(name)
		if err != nil {
			t.Errorf("Parse(%q): %v", name, err)
			continue
		}
		if r.String() != name || r.Function() != function {
			t.Errorf("Parse(%q) = %q with function %q, want function %q", name, r, r.Function(), function)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, hint string }{
		{"", "there are sum, count, min, max, none, module, module:NAME"},
		{"summ", "did you mean sum?"},
		{"SUM", "did you mean sum?"},
		{"cuont", "did you mean count?"},
		{"modul", "did you mean module?"},
		{"median", "there are sum, count"},
		{"module:", "module:NAME"},
		{"module:" + strings.Repeat("f", 129), "1 to 128 bytes"},
		{strings.Repeat("sum", 50_000), "there are sum"},
	} {
		_, err := Parse(tc.name)
		if api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("Parse(%.20q) = %v, want BAD_REQUEST", tc.name, err)
			continue
		}
		if e := api.AsError(err); !strings.Contains(e.Hint, tc.hint) || len(e.Error()) > 400 {
			t.Errorf("Parse(%.20q): %v; want the hint %q", tc.name, err, tc.hint)
		}
	}
}
