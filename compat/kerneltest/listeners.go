package kerneltest

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// drawListeners draws the open listeners of a trial: all [TProxyListeners], none, or some of them.
func (g *Generator) drawListeners() []Listener {
	var open []Listener
	switch g.below(4) {
	case 0:
	case 1:
		for _, l := range TProxyListeners {
			if g.oneIn(2) {
				open = append(open, l)
			}
		}
	default:
		open = slices.Clone(TProxyListeners)
	}
	return open
}

// setListeners opens the listeners, unless they are open, and closes all others.
func (n *Network) setListeners(open []Listener) error {
	if slices.Equal(open, n.openListeners) {
		return nil
	}
	n.CloseListeners()
	return n.Listen(open)
}

// describeListeners sets the fields of the packets that describe the open listeners. models are the
// rulesets whose rules name listeners.
func describeListeners(packets []rules.Packet, open []Listener, models ...*rules.Ruleset) {
	isMissing := func(port uint16) bool {
		hasPort := func(l Listener) bool { return l.Port == port }
		return slices.ContainsFunc(TProxyListeners, hasPort) && !slices.ContainsFunc(open, hasPort)
	}
	var missing []string
	add := func(addr netip.Addr, port uint16) {
		if len(open) > 0 && isMissing(port) {
			missing = append(missing, rules.ListenerName(addr, port))
		}
	}
	for _, l := range TProxyListeners {
		add(netip.Addr{}, l.Port)
	}
	for _, rs := range models {
		for _, r := range rs.AllRules() {
			for _, a := range r.Actions {
				switch a := a.(type) {
				case rules.TProxy:
					add(a.Addr, a.Port)
				case rules.TProxyDrop:
					add(a.Addr, a.Port)
				}
			}
		}
	}
	set := rules.NewListenerSet(missing...)
	for i := range packets {
		packets[i].NoListener, packets[i].MissingListeners = len(open) == 0, set
	}
}

// openListeners returns the [TProxyListeners] that are open according to the fields of the packet.
func openListeners(p *rules.Packet) []Listener {
	if p.NoListener {
		return nil
	}
	var open []Listener
	for _, l := range TProxyListeners {
		if !p.MissingListeners.Has(rules.ListenerName(netip.Addr{}, l.Port)) {
			open = append(open, l)
		}
	}
	return open
}
