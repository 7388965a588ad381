package main

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlySidecarsRunTheSampleProxy(t *testing.T) {
	for _, test := range []struct{ name, args, mode, want string }{
		{
			"a sidecar runs the sample proxy", "proxy sidecar --domain x --log_output_level=info",
			"REDIRECT", sampleProxy + " proxy sidecar",
		},
		{"a TPROXY sidecar runs a transparent proxy", "proxy sidecar", "TPROXY", sampleProxy +
			" proxy sidecar -transparent"},
		{"validation runs pilot-agent", "istio-iptables --run-validation", "", istioAgent +
			" istio-iptables --run-validation"},
		{"wait runs pilot-agent", "wait", "", istioAgent + " wait"},
		{"a gateway runs pilot-agent", "proxy router", "", istioAgent + " proxy router"},
		{"no arguments run pilot-agent", "", "", istioAgent},
	} {
		if got := command(strings.Fields(test.args), test.mode); !slices.Equal(got,
			strings.Fields(test.want)) {
			t.Errorf("%s: %q, want %s", test.name, got, test.want)
		}
	}
}
