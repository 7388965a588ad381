package xt_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// TestIgnoredInputs checks that a match that reads data that rules change does not ignore it, and
// that an unknown match ignores nothing.
func TestIgnoredInputs(t *testing.T) {
	for name, reads := range map[string]rules.Inputs{
		"fancy": rules.AllInputs, "bpf": rules.AllInputs, "policy": rules.AllInputs,
		"realm": rules.AllInputs, "cluster": rules.AllInputs, "connlimit": rules.AllInputs,
		"connbytes": rules.ConnectionInput, "connlabel": rules.ConnectionInput,
		"conntrack": rules.ConnectionInput, "helper": rules.ConnectionInput,
		"mark": rules.MarkInput, "connmark": rules.ConnectionInput | rules.ConntrackMarkInput,
		"rpfilter": rules.MarkInput | rules.HeaderInput, "devgroup": rules.InterfaceInput, "addrtype": rules.HeaderInput | rules.InterfaceInput,
		"set": rules.MarkInput | rules.HeaderInput | rules.InterfaceInput,
		"u32": rules.HeaderInput, "socket": rules.HeaderInput, "string": rules.HeaderInput,
		"recent": rules.HeaderInput, "length": 0, "ttl": 0, "time": 0,
	} {
		u := xt.DecodeMatch(&rules.Rule{}, rules.IPv4, xt.Extension{
			Name: name, Revision: 9, Data: []byte{1},
		})[0].(rules.Unknown)
		if got := rules.AllInputs &^ u.Ignores; got != reads {
			t.Errorf("%s: reads %b, want %b", name, got, reads)
		}
	}
}
