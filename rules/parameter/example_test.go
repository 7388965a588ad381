package parameter_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules/parameter"
)

// Redirect evaluates the arguments and the environment of an istio-init container.
func ExampleInvocation_Redirect() {
	environment := map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "CAPTURE_ALL_DNS": "true"}
	redirect, err := parameter.Invocation{
		Args: []string{
			"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT",
			"-i", "*", "-x", "10.96.0.0/12", "-b", "*", "-d", "15090,15021,15020",
		},
		Variable: func(name string) (string, bool) {
			v, found := environment[name]
			return v, found
		},
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.7")},
	}.Redirect()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(redirect.OutboundExcludeCIDRs, redirect.InboundExcludePorts, redirect.DNS.Capture)

	_, err = parameter.Invocation{Args: []string{"-z", "80a", "--color", "-d", "1,x"}}.Redirect()
	fmt.Println(err)
	// Output:
	// [10.96.0.0/12] [15020 15021 15090] true
	// "--color" is not a flag of istio-iptables
	// --inbound-capture-port (-z): "80a" is not a port (1-65535)
	// --istio-local-exclude-ports (-d): "x" is neither a port (0-65535) nor an ascending range of ports
}
