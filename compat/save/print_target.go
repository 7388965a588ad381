package save

import (
	"fmt"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
)

// actions writes the target, behind an optional counter.
func (w *rulePrinter) actions(list []rules.Action) error {
	if len(list) > 0 && list[0] == (rules.Count{}) {
		list = list[1:]
	}
	if len(list) == 0 {
		return nil
	}
	if len(list) > 1 {
		return fmt.Errorf("%s %s: iptables has one action for each rule", list[0], list[1])
	}
	return w.action(list[0])
}

func (w *rulePrinter) action(action rules.Action) error {
	switch a := action.(type) {
	case rules.Verdict:
		w.add("-j", [...]string{rules.Accept: "ACCEPT", rules.Drop: "DROP", rules.Return: "RETURN"}[a])
		return nil
	case rules.Jump:
		if w.table.Chain(a.Chain) == nil {
			return fmt.Errorf("%s: the table has no such chain", a)
		}
		w.add(map[bool]string{false: "-j", true: "-g"}[a.Goto], a.Chain)
		return nil
	case rules.RedirectTo:
		return w.toPort(a, a.Port, "nat", "REDIRECT", "--to-ports", portText(a.Port))
	case rules.DNATPort:
		return w.toPort(a, a.Port, "nat", "DNAT", "--to-destination", ":"+portText(a.Port))
	case rules.TProxyDrop:
		return w.tproxy(a)
	case rules.SetMark:
		if a.Value&^a.Mask != 0 {
			return fmt.Errorf("%s: bits outside of the mask would be flipped", a)
		}
		return w.target(a, "", "MARK", "--set-xmark", fullMark(a.Value, a.Mask))
	case rules.SaveMark:
		return w.target(a, "", "CONNMARK", "--save-mark", "--nfmask", "0xffffffff", "--ctmask", "0xffffffff")
	case rules.RestoreMark:
		return w.target(a, "", "CONNMARK", "--restore-mark", "--nfmask", "0xffffffff", "--ctmask", "0xffffffff")
	case rules.SetZone:
		return w.target(a, "raw", "CT", "--zone", strconv.Itoa(int(a.Zone)))
	}
	return fmt.Errorf("%s: iptables has no such target", action)
}

// target writes a target that is in the table of that name only, if there is one.
func (w *rulePrinter) target(a rules.Action, table string, words ...string) error {
	if table != "" && w.table.Name != table {
		return fmt.Errorf("%s: this target is in table %s only", a, table)
	}
	w.add("-j")
	w.add(words...)
	return nil
}

// toPort writes a target with a port, which the rule's protocol must have.
func (w *rulePrinter) toPort(a rules.Action, port uint16, table string, words ...string) error {
	if w.protocol != rules.TCP && w.protocol != rules.UDP {
		return fmt.Errorf("%s: the rule must ask for tcp or udp", a)
	}
	if port == 0 {
		return fmt.Errorf("%s: port 0 is the connection's own", a)
	}
	return w.target(a, table, words...)
}

func (w *rulePrinter) tproxy(a rules.TProxyDrop) error {
	if a.Value&^a.Mask != 0 {
		return fmt.Errorf("%s: bits outside of the mask would be flipped", a)
	}
	address := "0.0.0.0"
	if w.table.Family == rules.IPv6 {
		address = "::"
	}
	return w.toPort(a, a.Port, "mangle", "TPROXY", "--on-port", portText(a.Port), "--on-ip", address,
		"--tproxy-mark", fullMark(a.Value, a.Mask))
}

func portText(p uint16) string { return strconv.Itoa(int(p)) }

func fullMark(value, mask uint32) string { return fmt.Sprintf("0x%x/0x%x", value, mask) }
