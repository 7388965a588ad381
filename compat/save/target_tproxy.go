package save

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// targetTProxy parses the target TPROXY.
func (r *moduleReader) targetTProxy() rules.Action {
	o := r.requiredOption("--on-port")
	if o == nil {
		return nil
	}
	a := rules.TProxyDrop{Port: r.port(o.values[0], o.values[0].text)}
	if mark := r.option("--tproxy-mark"); mark != nil {
		a.Value, a.Mask = r.mark(mark.values[0])
	}
	if ip := r.option("--on-ip"); ip != nil {
		address, ok := r.address(ip.values[0].text)
		switch {
		case !ok:
			r.fail(ip.values[0], "%s", r.expectedAddress())
		case !address.IsUnspecified():
			a.Addr = address
		}
	}
	return a
}

// addTProxy adds the target TPROXY.
func (p *rulePrinter) addTProxy(a rules.TProxyDrop) error {
	address := netip.IPv4Unspecified()
	if p.table.Family == rules.IPv6 {
		address = netip.IPv6Unspecified()
	}
	if a.Addr.IsValid() {
		address = a.Addr
	}
	if !p.isOfFamily(address) {
		return fmt.Errorf("%s: the address is not of the table's family", a)
	}
	return p.addPortTarget(a, a.Port, "mangle", "TPROXY", "--on-port", portText(a.Port),
		"--on-ip", address.String(), "--tproxy-mark", maskedMark(a.Value, a.Mask))
}
