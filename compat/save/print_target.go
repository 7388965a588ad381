package save

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// addActions writes the target for the actions. It writes nothing for a counter before the target.
func (p *rulePrinter) addActions(actions []rules.Action) error {
	if len(actions) > 0 && actions[0] == (rules.Count{}) {
		actions = actions[1:]
	}
	if len(actions) == 0 {
		return nil
	}
	if len(actions) > 1 {
		return fmt.Errorf("%s %s: an iptables rule has at most one action", actions[0], actions[1])
	}
	return p.addAction(actions[0])
}

// addAction writes the target for an action.
func (p *rulePrinter) addAction(action rules.Action) error {
	switch a := action.(type) {
	case rules.Verdict:
		p.add("-j",
			[...]string{rules.Accept: "ACCEPT", rules.Drop: "DROP", rules.Return: "RETURN"}[a])
		return nil
	case rules.Jump:
		if p.table.Chain(a.Chain) == nil {
			return fmt.Errorf("%s: the table has no such chain", a)
		}
		p.add(map[bool]string{false: "-j", true: "-g"}[a.Goto], a.Chain)
		return nil
	case rules.RedirectTo:
		if a == (rules.RedirectTo{}) {
			return p.addTarget(a, "nat", "REDIRECT")
		}
		return p.addPortTarget(a, a.Port, "nat", "REDIRECT", "--to-ports", portsText(a.Port, a.Last))
	case rules.DNATPort:
		return p.addPortTarget(a, a.Port, "nat", "DNAT", "--to-destination",
			":"+portsText(a.Port, a.Last))
	case rules.DNATTo:
		return p.addDNAT(a)
	case rules.SNATTo:
		if !p.isOfFamily(a.Addr) {
			return fmt.Errorf("%s: the address is not of the table's family", a)
		}
		return p.addTarget(a, "nat", "SNAT", "--to-source", a.Addr.String())
	case rules.TProxyDrop:
		return p.addTProxy(a)
	case rules.Reject:
		return p.addReject(a)
	case rules.SetMark:
		return p.addTarget(a, "", "MARK", "--set-xmark", maskedMark(a.Value, a.Mask))
	case rules.SaveMark:
		return p.addMixMark(rules.MixMark{Conntrack: true, Mark: allBits})
	case rules.RestoreMark:
		return p.addMixMark(rules.MixMark{ConntrackMark: allBits})
	case rules.MixMark:
		return p.addMixMark(a)
	case rules.SetZone:
		words := []string{"CT", "--zone", strconv.Itoa(int(a.Zone))}
		if a.Helper != "" {
			words = append(words, "--helper", a.Helper)
		}
		return p.addTarget(a, "raw", words...)
	case rules.Notrack:
		return p.addTarget(a, "raw", "CT", "--notrack")
	case rules.NoEffect:
		if a == xt.NoEffect("LOG") {
			return p.addTarget(a, "", "LOG")
		}
		if a == xt.NoEffect("TRACE") {
			return p.addTarget(a, "raw", "TRACE")
		}
		if group, ok := strings.CutPrefix(a.Text, "log group "); ok {
			return p.addTarget(a, "", "NFLOG", "--nflog-group", group)
		}
	}
	return fmt.Errorf("%s: iptables has no such target", action)
}

// addTarget writes a target. If table is not empty, addTarget returns an error in other tables.
func (p *rulePrinter) addTarget(a rules.Action, table string, words ...string) error {
	if table != "" && p.table.Name != table {
		return fmt.Errorf("%s: this target is in table %s only", a, table)
	}
	p.add("-j")
	p.add(words...)
	return nil
}

// addPortTarget writes a target with a port. The rule must match only TCP or only UDP. Port 0 is an
// error in table nat.
func (p *rulePrinter) addPortTarget(
	a rules.Action, port uint16, table string, words ...string,
) error {
	if p.protocol != rules.TCP && p.protocol != rules.UDP {
		return fmt.Errorf("%s: the rule must match tcp or udp", a)
	}
	if port == 0 && table == "nat" {
		return fmt.Errorf("%s: port 0 keeps the port of the connection", a)
	}
	return p.addTarget(a, table, words...)
}

// isOfFamily reports whether the address is valid in the printed table.
func (p *rulePrinter) isOfFamily(a netip.Addr) bool {
	return a.IsValid() && rules.FamilyOf(a) == p.table.Family && a.Zone() == ""
}

// portText returns the text of a port.
func portText(p uint16) string { return strconv.Itoa(int(p)) }

// portsText returns the text of a port, or of a range if last is not 0.
func portsText(first, last uint16) string {
	if last == 0 {
		return portText(first)
	}
	return portText(first) + "-" + portText(last)
}
