package rules_test

import (
	"fmt"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestListenerSet(t *testing.T) {
	if got := rules.NewListenerSet("15008", "127.0.0.1:15006", "15008", "9"); got != "127.0.0.1:15006,15008,9" {
		t.Errorf("set %q, want its names once, sorted", got)
	}
	for size := range 20 {
		var names []string
		for i := range size {
			names = append(names, fmt.Sprint(7*i*i*i+1))
		}
		set := rules.NewListenerSet(names...)
		for _, name := range names {
			for _, other := range []string{name + "0", "0" + name, name[1:] + "x", ""} {
				if set.Has(other) {
					t.Errorf("set %q has %q", set, other)
				}
			}
			if !set.Has(name) {
				t.Errorf("set %q does not have %q", set, name)
			}
		}
		if set.Has("") || set.Has(",") {
			t.Errorf("set %q has a name that was not added", set)
		}
	}
}
