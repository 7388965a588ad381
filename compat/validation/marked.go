package validation

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// planMarkedPackets adds packets to another host with TPROXY's mark. The policy route delivers them
// locally, as it does with the application's replies to a proxy that uses the client's address. A
// datagram is sufficient, and no other rule matches it.
func (p *planner) planMarkedPackets(f rules.Family) {
	routing := p.rules.Routing
	i := slices.IndexFunc(routing.Policies, func(r rules.PolicyRoute) bool { return r.Family == f })
	if i < 0 {
		return
	}
	t := probe{Check: Check{
		Name: "policy route, " + familyName(f), Kind: PolicyRoutes,
		Expected: "stays in the pod because of its mark",
	}, packet: rules.Packet{
		Hook: rules.Output, OutInterface: lo, Protocol: rules.UDP, Mark: routing.Policies[i].Mark,
		Owner:       &p.self,
		Source:      netip.AddrPortFrom(loopbackOf(f), 0),
		Destination: netip.AddrPortFrom(testNets(f)[0], p.options.Port),
	}}
	if !p.transparent {
		t.skip("marked packets and transparent sockets need CAP_NET_ADMIN", runOnNode)
	}
	p.add(t)
}

// sourceCheck looks at the one setting that breaks TPROXY and that no connection from within shows:
// packets over lo are not routed again when they arrive. It may fail, but proves nothing: the
// setting is in order where there is no rule, too.
func (v *validator) sourceCheck() []Check {
	if v.options.Redirect.Mode != rules.ModeTProxy {
		return nil
	}
	var set []string
	read := 0
	_ = v.ns.Do(func() error {
		files, err := filepath.Glob("/proc/sys/net/ipv4/conf/*/src_valid_mark")
		for _, file := range files {
			value, readErr := os.ReadFile(file)
			if readErr != nil {
				continue
			}
			read++
			if strings.TrimSpace(string(value)) != "0" {
				set = append(set, filepath.Base(filepath.Dir(file)))
			}
		}
		return err
	})
	return []Check{sourceCheckResult(read, set)}
}

func sourceCheckResult(read int, set []string) Check {
	c := Check{
		Name: "source check", Kind: Settings, Expected: "net.ipv4.conf.*.src_valid_mark is 0",
		Status: NotChecked,
	}
	switch {
	case read == 0:
		c.Reason = "/proc/sys/net/ipv4/conf cannot be read"
	// "default" applies only to new interfaces.
	case len(set) == 0 || slices.Equal(set, []string{"default"}):
		c.Status, c.Found = OK, "it is 0"
	default:
		c.Status, c.Found = Failed, "it is 1 for "+strings.Join(set, ", ")
		c.Reason = "the kernel then routes the source of an inbound packet with TPROXY's mark, considers it local, and drops the packet"
		c.Next = fmt.Sprintf("sysctl -w net.ipv4.conf.%s.src_valid_mark=0", set[0])
	}
	return c
}
