package doctor

import (
	"fmt"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/bridge"
)

// checkForeignEffect reports the foreign rules that make captured traffic bypass the proxy.
func (d *diagnosis) checkForeignEffect() {
	if d.Foreign == nil {
		return
	}
	for _, bypass := range d.Foreign.Bypasses {
		d.add("rules", Problem, bypass.String(), bypassAdvice(bypass))
	}
	if d.Foreign.More {
		d.add("rules", Problem, "more classes of packets bypass the proxy than are listed", "")
	}
	for _, text := range d.Foreign.Unknown {
		switch text {
		case d.Foreign.Bridges:
			d.add("rules", Problem, text, fmt.Sprintf("set %s and %s to 0 in the namespace, and remove these "+
				"options of the bridges, or choose the interception mode REDIRECT", bridge.SysctlIPv4,
				bridge.SysctlIPv6))
		case d.Foreign.SynCookies:
			d.add("settings", Problem, text, fmt.Sprintf("set %s to 1 in the namespace (sysctls in the pod's "+
				"securityContext), or choose the interception mode REDIRECT", compat.SynCookiesSysctl))
		default:
			d.add("rules", Warning, text,
				"check the effect on captured traffic: whether it bypasses the proxy cannot be decided")
		}
	}
	if d.Foreign.Verdict() == foreign.None {
		d.add("rules", OK, "no foreign rule makes captured traffic bypass the proxy", "")
	}
}

// bypassAdvice returns the remedy for a bypass. One of Sluice's rules decides a bypass if the rules
// were installed with other parameters, or if a foreign rule has changed the packet before.
func bypassAdvice(b foreign.Bypass) string {
	if b.Owner == foreign.OwnerSluice {
		return "run rules check to compare Sluice's rules with these parameters; if they are equal," +
			" find the foreign rule that changes these packets before"
	}
	return "find the program that adds this rule, and remove the rule; in a pod such a program has" +
		" NET_ADMIN"
}

// bypasses reports whether captured traffic is known to bypass the proxy.
func (d *diagnosis) bypasses() bool { return d.Foreign != nil && len(d.Foreign.Bypasses) > 0 }
