package istio_test

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// deviationsExpected returns the deviations from istio-iptables' rules that affect some packet. It
// derives them from the parameters, independently of the implementation.
func deviationsExpected(r rules.Redirect) map[rules.DeviationID]bool {
	expected := map[rules.DeviationID]bool{}
	if r.Mode == rules.ModeTProxy {
		if capturesInbound(r, r.TunnelPort) {
			expected[rules.TunnelPortTProxy] = true
		}
		if hasInbound(r) && slices.ContainsFunc(r.RerouteInterfaces, func(n rules.InterfaceName) bool {
			return !slices.Contains(r.ExcludeInterfaces, n)
		}) {
			expected[rules.RerouteTProxy] = true
		}
	}
	isMapped := func(p netip.Prefix) bool { return p.Addr().Is4In6() }
	reroutesMapped := len(r.RerouteInterfaces) > 0 &&
		slices.ContainsFunc(r.OutboundCIDRs.Prefixes, isMapped)
	changesIfUnmapped := func(included []netip.Prefix) bool {
		return !capturedAddresses(r, included,
			unchanged).Equal(capturedAddresses(r, included, unmapped))
	}
	if reroutesMapped || slices.ContainsFunc(inclusions(r), changesIfUnmapped) {
		expected[rules.MappedCIDR] = true
	}
	return expected
}
