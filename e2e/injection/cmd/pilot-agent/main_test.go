package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	for _, test := range []struct{ name, args, mode, want string }{
		{
			"a sidecar is the sample", "proxy sidecar --domain x --log_output_level=info",
			"REDIRECT", sample + " proxy sidecar",
		},
		{"a sidecar for TPROXY keeps the callers' addresses", "proxy sidecar", "TPROXY", sample +
			" proxy sidecar -transparent"},
		{"the validation is Istio's", "istio-iptables --run-validation", "", realAgent +
			" istio-iptables --run-validation"},
		{"what waits for the proxy is Istio's", "wait", "", realAgent + " wait"},
		{"a gateway is none of ours", "proxy router", "", realAgent + " proxy router"},
		{"nothing", "", "", realAgent},
	} {
		if got := command(strings.Fields(test.args), test.mode); !slices.Equal(got,
			strings.Fields(test.want)) {
			t.Errorf("%s: %q, want %s", test.name, got, test.want)
		}
	}
}
