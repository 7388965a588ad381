package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// checkSourceMark checks net.ipv4.conf.*.src_valid_mark. If it is 1, the kernel uses the packet's
// mark to look up the route to the source of the packet, and TPROXY's mark makes every address
// local (fib_validate_source in net/ipv4/fib_frontend.c). rp_filter does not have this effect.
func (d *diagnosis) checkSourceMark() {
	if d.SettingsErr != nil {
		next := "mount /proc"
		if nft.IsNotPermitted(d.SettingsErr) {
			next = "run rules doctor with this permission"
		}
		d.add("settings", Warning, "cannot read sysctls: "+d.SettingsErr.Error(), next)
		return
	}
	var enabled []string // the names of interfaces, or "all"
	for name, value := range d.Settings {
		device, ok := strings.CutPrefix(name, "net.ipv4.conf.")
		device, isMark := strings.CutSuffix(device, ".src_valid_mark")
		// "default" applies to future interfaces.
		if ok && isMark && value != "0" && device != "default" {
			enabled = append(enabled, device)
		}
	}
	slices.Sort(enabled)
	switch {
	case len(enabled) == 0:
		d.add("settings", OK,
			"src_valid_mark is 0 for all interfaces; rp_filter does not affect capture", "")
	case d.usesTProxy():
		d.add("settings", Problem,
			fmt.Sprintf("src_valid_mark is 1 for %s: the kernel drops packets that TPROXY captures,"+
				" because their source looks local", strings.Join(enabled, ", ")),
			compat.ClearSourceMarkCommand(enabled))
	default:
		d.add("settings", Note,
			fmt.Sprintf("src_valid_mark is 1 for %s: it would break TPROXY, but not REDIRECT",
				strings.Join(enabled, ", ")), "")
	}
}

// checkMarkOfAnswers checks net.ipv4.tcp_fwmark_accept, which applies to both families. If it is 1,
// an accepted connection takes the mark of its first packet. TPROXY's mark then routes the proxy's
// answers to lo.
func (d *diagnosis) checkMarkOfAnswers() {
	const name = "net.ipv4.tcp_fwmark_accept"
	if value := d.Settings[name]; d.usesTProxy() && value != "" && value != "0" {
		d.add("settings", Problem,
			"tcp_fwmark_accept is "+value+": connections that the proxy accepts take TPROXY's mark, which routes"+
				" the proxy's answers to lo instead of the peer", "sysctl -w "+name+"=0")
	}
}

// nearlyFull is the usage ratio of the conntrack table that causes a warning.
const nearlyFull = 0.9

// checkConntrack reports settings of conntrack that let connections bypass the proxy or fail, and a
// full or nearly full conntrack table.
func (d *diagnosis) checkConntrack() {
	const prefix = "net.netfilter.nf_conntrack_"
	// If tcp_loose is 1, a packet without an entry starts a connection and is redirected to the
	// proxy, which resets the connection (tcp_new in net/netfilter/nf_conntrack_proto_tcp.c).
	if d.Settings[prefix+"tcp_loose"] == "0" {
		d.add("settings", Warning,
			"nf_conntrack_tcp_loose is 0: after conntrack discards the entry of a captured"+
				" connection, its packets are invalid and bypass the proxy",
			"sysctl -w net.netfilter.nf_conntrack_tcp_loose=1")
	}
	for _, timeout := range []struct{ name, protocol string }{
		{"tcp_timeout_syn_sent", "TCP"},
		{"tcp_timeout_established", "TCP"},
		{"tcp_timeout_unacknowledged", "TCP"},
		{"tcp_timeout_max_retrans", "TCP"},
		{"udp_timeout", "UDP"},
	} {
		isUsed := timeout.protocol == "TCP" || d.redirect.DNS.Capture
		if seconds, ok := d.sysctlNumber(prefix + timeout.name); ok && seconds == 0 && isUsed {
			d.add("settings", Problem,
				fmt.Sprintf("nf_conntrack_%s is 0: conntrack discards entries at once, so that answers of captured %s"+
					" connections are not translated and get lost", timeout.name, timeout.protocol),
				"set "+prefix+timeout.name+" to the value of the node")
		}
	}
	count, countOK := d.sysctlNumber(prefix + "count")
	limit, limitOK := d.sysctlNumber(prefix + "max")
	switch {
	case !countOK || !limitOK || limit == 0:
	case count >= limit:
		d.add("settings", Problem,
			fmt.Sprintf("the conntrack table is full, %d of %d entries: new connections are dropped",
				count, limit),
			"raise net.netfilter.nf_conntrack_max on the node")
	case float64(count) >= nearlyFull*float64(limit):
		d.add("settings", Warning,
			fmt.Sprintf("the conntrack table is nearly full, %d of %d entries: when it is full, new"+
				" connections are dropped", count, limit),
			"raise net.netfilter.nf_conntrack_max on the node")
	}
}

// sysctlNumber returns the value of a sysctl. It returns false if the value is unknown, for
// instance because the kernel lacks the sysctl.
func (d *diagnosis) sysctlNumber(name string) (int, bool) {
	n, err := strconv.Atoi(d.Settings[name])
	return n, err == nil
}

// checkLocalPorts reports ports of the proxy that the kernel may assign as ephemeral ports.
func (d *diagnosis) checkLocalPorts() {
	var local rules.PortRange
	portRange := d.Settings["net.ipv4.ip_local_port_range"]
	if _, err := fmt.Sscan(portRange, &local.First, &local.Last); err != nil {
		return
	}
	reservedText := d.Settings["net.ipv4.ip_local_reserved_ports"]
	reserved, err := rules.ParsePorts(reservedText)
	if err != nil {
		return
	}
	ports := []uint16{d.redirect.ProxyPort, d.redirect.InboundCapturePort, d.redirect.TunnelPort}
	if d.redirect.DNS.Capture {
		ports = append(ports, rules.DNSPort)
	}
	var assignable []string
	for _, port := range ports {
		if local.Contains(port) && !rules.Contains(rules.Normalize(reserved), port) {
			assignable = append(assignable, strconv.Itoa(int(port)))
		}
	}
	if len(assignable) > 0 {
		ports := strings.Join(assignable, ",")
		toReserve := ports
		if reservedText != "" {
			toReserve = reservedText + "," + ports // the sysctl replaces the whole list
		}
		d.add("settings", Warning,
			fmt.Sprintf("net.ipv4.ip_local_port_range (%s) contains the proxy's ports %s: a"+
				" connection that uses such a port prevents the proxy from listening on it", local,
				ports),
			"sysctl -w net.ipv4.ip_local_reserved_ports="+toReserve)
	}
}
