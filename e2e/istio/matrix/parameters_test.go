package matrix

import (
	"strings"
	"testing"
)

func TestParseRejectsInvalidRows(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"{group: x, noRule: true}", `unknown field "noRule"`},
		{"{group: x, pods: [v5]}", `no pod has the name "v5"`},
		{"{group: x, modes: [tproxy]}", `x: mode "tproxy", want one of ["REDIRECT" "TPROXY"]`},
		{"{group: x, each: {a: [], b: []}}", "x: each: 2 names, want 1"},
		{"{group: x, values: [{a: [], b: []}]}", "2 names, want 1"},
		{"{group: x, values: [{a: [\"b={3 ports}\"]}]}", "unknown placeholder in the setting b={3 ports}"},
	} {
		if _, err := parse([]byte("- " + row.text)); err == nil ||
			!strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: error %v, want %q", row.text, err, row.want)
		}
	}
}
