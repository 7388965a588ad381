package nft_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// defaultCalls contains calls with the expected answers for the parameters of sidecar. Except for
// the deviations, istio-init's rules result in the same answers.
var defaultCalls = []row{
	{call: "in tcp pod:8080", want: "inbound"},
	{call: "in tcp pod:80", want: "inbound"},
	{call: "in tcp pod:15001", want: "inbound"},
	{call: "in tcp pod:15006", want: "inbound"},
	{call: "in tcp pod:15053", want: "inbound"},
	{call: "in tcp pod:15008", want: "tunnel"},
	{call: "in tcp pod:15020", want: "agent"},
	{call: "in tcp pod:15021", want: "health"},
	{call: "in tcp pod:15090", want: "metrics"},
	{call: "in udp pod:8080", want: "application"},
	{call: "in udp pod:53", want: "application"},
	{call: "in udp pod:15053", want: "dns"},

	{call: "app tcp world:80", want: "outbound"},
	{call: "root tcp world:80", want: "outbound"},
	{call: "1000:0 tcp world:443", want: "outbound"},
	{call: "app tcp world:53", want: "outbound"},
	{call: "app tcp world:15001", want: "outbound"},
	{call: "app tcp world:15008", want: "outbound"},
	{call: "app tcp world:15021", want: "outbound"},
	{call: "app tcp neighbor:80", want: "outbound"},
	{call: "app udp world:53", want: "outside"},
	{call: "app udp world:443", want: "outside"},
	{call: "root udp world:80", want: "outside"},

	{call: "proxy tcp world:80", want: "outside"},
	{call: "proxy udp world:80", want: "outside"},
	{call: "proxy tcp world:53", want: "outside"},
	{call: "rootproxy tcp world:80", want: "outside"},
	{call: "1000:1337 tcp world:80", want: "outside"},
	{call: "1337:1000 tcp world:80", want: "outside"},

	{call: "app tcp pod:8080", want: "application"},
	{call: "app tcp lo:8080", want: "application"},
	{call: "app udp lo:8080", want: "application"},
	{call: "app tcp 127.0.0.2:8080", want: "application"},
	{call: "app tcp pod:15008", want: "tunnel"},
	{call: "app tcp pod:15021", want: "health"},
	{call: "root tcp pod:8080", want: "application"},
	{call: "root tcp lo:15001", want: "outbound"},

	{call: "proxy tcp pod:8080", want: "inbound"},
	{call: "1337:1000 tcp pod:8080", want: "inbound"},
	{call: "proxy tcp pod:53", want: "inbound"},
	{call: "proxy tcp pod:15008", want: "tunnel"},
	{call: "proxy tcp pod:15021", want: "inbound"},
	{call: "proxy tcp lo:8080", want: "application"},
	{call: "proxy tcp 127.0.0.2:8080", want: "inbound"},
	{call: "proxy udp pod:8080", want: "application"},
	{call: "rootproxy tcp pod:8080", want: "application", tproxy: "inbound"},
	{call: "rootproxy tcp lo:8080", want: "application"},
	{call: "1000:1337 tcp pod:8080", want: "application", tproxy: "inbound"},
	{call: "rootproxy tcp pod:15008", want: "tunnel"},
	{call: "rootproxy tcp pod:15021", want: "health"},

	// These are the connections of istio-validation.
	{call: "proxy tcp pass:15002 from lo:0", want: "inbound"},
	{call: "app tcp pass:15002 from lo:0", want: "application"},

	{call: "proxy tcp pod:8080 from pass:0", want: "application"},
	{call: "proxy tcp lo:8080 from pass:0", want: "application"},
	{call: "rootproxy tcp pod:8080 from pass:0", want: "application"},
	{call: "app tcp pod:8080 from pass:0", want: "application"},
}

func TestTrafficOfASidecar(t *testing.T) {
	t.Parallel()
	scenario{name: "default", rows: defaultCalls}.run(t)
}

// TestTrafficStrictIstio checks that without the deviations TPROXY captures the tunnel port too.
func TestTrafficStrictIstio(t *testing.T) {
	t.Parallel()
	strict := func(r *rules.Redirect) { r.StrictIstio() }
	var rows []row
	for _, r := range defaultCalls {
		switch r.call {
		case "in tcp pod:15008", "proxy tcp pod:15008", "rootproxy tcp pod:15008":
			r.tproxy = "inbound"
		}
		rows = append(rows, r)
	}
	scenario{name: "strict", change: strict, rows: rows}.run(t)
}
