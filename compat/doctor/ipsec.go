package doctor

import (
	"fmt"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// checkIPsec reports the IPsec policies that drop packets of captured connections. A policy for
// some peers whose packets must have IPsec works as intended, and is not reported.
func (d *diagnosis) checkIPsec() {
	if d.IPsecErr != nil {
		if !nft.IsNotPermitted(d.IPsecErr) { // checkPermission reports it
			d.add("routing", Note, "IPsec policies are not known: "+d.IPsecErr.Error(), "")
		}
		return
	}
	found := similarFindings{}
	for i := range d.IPsec {
		p := &d.IPsec[i]
		isCaptured := p.Protocol == 0 || p.Protocol == rules.TCP ||
			p.Protocol == rules.UDP && d.redirect.DNS.Capture
		if !isCaptured || p.Family == rules.IPv6 && !d.redirect.IPv6 ||
			p.IsInbound && p.RequiresIPsec && !p.IsGeneral() {
			continue
		}
		severity, packets, effect := Warning, fmt.Sprintf("outgoing packets to %s", p.Destination),
			"connections fail before the rules see their packets"
		if p.IsInbound {
			packets = fmt.Sprintf("incoming packets from %s to %s", p.Source, p.Destination)
			effect = "these packets do not reach the proxy"
		}
		if p.IsGeneral() {
			severity = Problem
		}
		d.addSimilar(found, severity,
			fmt.Sprintf("an IPsec policy drops %s, because %s: %s: %s", packets, p.Reason, effect, p.Text),
			"change or remove that policy, or add the state that it needs")
	}
	d.addMore(found, "IPsec policies like these")
}
