package rules_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestCapturesIPv6(t *testing.T) {
	for _, tc := range []struct {
		name, addresses string
		// singleStack and dualStack are the results without and with dual stack.
		singleStack, dualStack bool
	}{
		{"an IPv4 pod", "10.0.0.1", false, false},
		{"an IPv6 pod", "fd00::1", true, true},
		{"IPv4 first", "10.0.0.1 fd00::1", false, true},
		{"IPv6 first, which the kernel lists after IPv4", "fd00::1 10.0.0.1", false, true},
		{"several IPv6 addresses", "fd00::1 fd00::2", true, true},
		{"an IPv4-mapped address", "::ffff:10.0.0.1", false, false},
		{"an IPv4-mapped address after IPv6", "fd00::1 ::ffff:10.0.0.1", false, true},
		{"no address", "", false, false},
	} {
		var addresses []netip.Addr
		for text := range strings.FieldsSeq(tc.addresses) {
			addresses = append(addresses, netip.MustParseAddr(text))
		}
		if got := rules.CapturesIPv6(addresses, false); got != tc.singleStack {
			t.Errorf("%s: CapturesIPv6 reports %t, want %t", tc.name, got, tc.singleStack)
		}
		if got := rules.CapturesIPv6(addresses, true); got != tc.dualStack {
			t.Errorf("%s, dual stack: CapturesIPv6 reports %t, want %t", tc.name, got, tc.dualStack)
		}
	}
}

func TestDecidesFamily(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "fd00::1": true, "0.0.0.0": true, "::ffff:10.0.0.1": true,
		"127.0.0.1": false, "::1": false, "169.254.0.1": false, "fe80::1": false, "ff02::1": false,
		"::ffff:127.0.0.1": false,
	} {
		if got := rules.DecidesFamily(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: DecidesFamily reports %t, want %t", text, got, want)
		}
	}
	if rules.DecidesFamily(netip.Addr{}) {
		t.Error("DecidesFamily reports true for the zero address, want false")
	}
}
