package foreign

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// unknownExpectations returns a sentence for each foreign rule that may make conntrack expect TCP
// connections, at most maxClasses sentences: rules that assign a conntrack helper, and in TPROXY
// mode rules that refer to an object of unknown effect, such as an expectation. NAT translates an
// expected connection like its master connection, and the rules of TPROXY mode do not assign it to
// the proxy. [diff.Bypass] does not evaluate expected connections, because the desired ruleset has
// none.
func unknownExpectations(live *compat.Live, desired *rules.Ruleset) []string {
	isTProxy := usesTProxy(desired)
	expects := func(a rules.Action) bool { return mayExpect(a, isTProxy) }
	var reasons []string
	for t, c := range live.Ruleset.AllChains() {
		for step := range stepsWith(t, c, expects) {
			owner := OwnerOf(&live.Ruleset, &step)
			if owner != OwnerSluice && len(reasons) < maxClasses {
				reasons = append(reasons, fmt.Sprintf("connections that conntrack expects because "+
					"of this rule may not be redirected: %s: %s", owner, step))
			}
		}
	}
	return reasons
}

// mayExpect reports whether the action may make conntrack expect TCP connections that the desired
// ruleset does not redirect. The listed helpers expect only UDP packets
// (nf_conntrack_netbios_ns.c, nf_conntrack_snmp.c and nf_conntrack_tftp.c in net/netfilter).
func mayExpect(a rules.Action, isTProxy bool) bool {
	switch a := a.(type) {
	case rules.SetZone:
		return a.Helper != "" && !slices.Contains([]string{"netbios-ns", "snmp", "tftp"}, a.Helper)
	case rules.Unknown:
		return isTProxy && a.Effect == rules.AnyEffect && a.Text == "objref"
	}
	return false
}
