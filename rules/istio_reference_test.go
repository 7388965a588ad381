package rules_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// istioReference returns the rules that istio-iptables generates from the parameters: one rule for
// each port, prefix and owner, in istio-iptables' order. TestReferenceEqualsRecordedRules compares
// these rules with the recorded runs.
func istioReference(r rules.Redirect) rules.Ruleset {
	var rs rules.Ruleset
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if f == rules.IPv6 && !r.IPv6 {
			break
		}
		rs.Tables = append(rs.Tables,
			must(save.Parse(f, "reference", strings.NewReader(newIstioWriter(r, f).text())))...)
		if r.Mode == rules.ModeTProxy && hasInbound(r) {
			rs.Routing.Policies = append(rs.Routing.Policies, rules.PolicyRoute{
				Family: f, Mark: r.TProxyMark, Table: r.TProxyRouteTable,
			})
		}
	}
	return rs
}

func hasInbound(r rules.Redirect) bool {
	return r.InboundPorts.All || len(r.InboundPorts.Ports) > 0
}

// istioWriter writes the rules of one family.
type istioWriter struct {
	rules.Redirect
	family                                 rules.Family
	lines                                  map[string][]string // by "table CHAIN"
	loopback, passthrough                  string
	included, excluded, servers            []string
	dns, tproxy, inbound, loopbackIncluded bool
}

func newIstioWriter(r rules.Redirect, f rules.Family) *istioWriter {
	w := &istioWriter{
		Redirect: r, family: f, lines: map[string][]string{},
		loopback: r.LoopbackCIDR.String(), passthrough: "127.0.0.6/32",
		included: prefixTexts(r.OutboundCIDRs.Prefixes, f),
		excluded: prefixTexts(r.OutboundExcludeCIDRs, f),
		dns:      r.DNS.Capture && (r.DNS.All || len(r.DNS.Servers) > 0),
		tproxy:   r.Mode == rules.ModeTProxy,
		inbound:  hasInbound(r),
		loopbackIncluded: slices.ContainsFunc(r.OutboundCIDRs.Prefixes,
			func(p netip.Prefix) bool { return p.Addr().IsLoopback() }),
	}
	if f == rules.IPv6 {
		w.loopback, w.passthrough = "::1/128", "::6/128"
	}
	if w.dns && !r.DNS.All {
		for _, s := range r.DNS.Servers {
			w.servers = append(w.servers,
				prefixTexts([]netip.Prefix{netip.PrefixFrom(s, s.BitLen())}, f)...)
		}
	}
	return w
}

// prefixTexts returns the prefixes of a family as text.
func prefixTexts(prefixes []netip.Prefix, f rules.Family) []string {
	var texts []string
	for _, p := range prefixes {
		if rules.FamilyOf(p.Addr()) == f {
			texts = append(texts, p.String())
		}
	}
	return texts
}

func (w *istioWriter) add(chain, format string, args ...any) {
	w.lines[chain] = append(w.lines[chain], fmt.Sprintf(format, args...))
}

func (w *istioWriter) insert(chain, format string, args ...any) {
	w.lines[chain] = append([]string{fmt.Sprintf(format, args...)}, w.lines[chain]...)
}

// text returns the rules in the format of iptables-save.
func (w *istioWriter) text() string {
	w.interfaceRules()
	if w.DropInvalid {
		w.add("mangle PREROUTING", "-m conntrack --ctstate INVALID -j ISTIO_DROP")
		w.add("mangle ISTIO_DROP", "-j DROP")
	}
	w.add("nat ISTIO_INBOUND", "-p tcp --dport %d -j RETURN", w.TunnelPort)
	w.add("nat ISTIO_REDIRECT", "-p tcp -j REDIRECT --to-ports %d", w.ProxyPort)
	w.add("nat ISTIO_IN_REDIRECT", "-p tcp -j REDIRECT --to-ports %d", w.InboundCapturePort)
	if w.inbound {
		w.inboundRules()
	}
	w.add("nat OUTPUT", "-j ISTIO_OUTPUT")
	w.outputRules()
	if w.tproxy {
		w.tproxyRules()
	}
	b := new(strings.Builder)
	for _, table := range []string{"raw", "mangle", "nat"} {
		fmt.Fprintf(b, "*%s\n", table)
		for chain := range w.lines {
			if name, ok := strings.CutPrefix(chain, table+" "); ok {
				fmt.Fprintf(b, ":%s -\n", name)
			}
		}
		for chain, lines := range w.lines {
			if name, ok := strings.CutPrefix(chain, table+" "); ok {
				for _, line := range lines {
					fmt.Fprintf(b, "-A %s %s\n", name, line)
				}
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func (w *istioWriter) interfaceRules() {
	tables := []string{"nat"}
	if w.tproxy {
		tables = append(tables, "mangle")
	}
	for _, n := range w.ExcludeInterfaces {
		for _, table := range tables {
			w.add(table+" PREROUTING", "-i %s -j RETURN", xtablesName(n))
			w.add(table+" OUTPUT", "-o %s -j RETURN", xtablesName(n))
		}
	}
	for _, n := range w.RerouteInterfaces {
		w.insert("nat PREROUTING", "-i %s -j RETURN", xtablesName(n))
	}
}

func xtablesName(n rules.InterfaceName) string {
	if n.Prefix {
		return n.Name + "+"
	}
	return n.Name
}

func xtablesPorts(p rules.PortRange) string { return strings.Replace(p.String(), "-", ":", 1) }

func (w *istioWriter) inboundRules() {
	table := "nat"
	if w.tproxy {
		table = "mangle"
		w.add("mangle ISTIO_DIVERT", "-j MARK --set-xmark %d/0xffffffff", w.TProxyMark)
		w.add("mangle ISTIO_DIVERT", "-j ACCEPT")
		w.add("mangle ISTIO_TPROXY",
			"! -d %s -p tcp -j TPROXY --on-port %d --tproxy-mark %d/0xffffffff",
			w.loopback, w.InboundCapturePort, w.TProxyMark)
	}
	w.add(table+" PREROUTING", "-p tcp -j ISTIO_INBOUND")
	capture := func(match string) {
		if w.tproxy {
			w.add("mangle ISTIO_INBOUND",
				"%s -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT", match)
			w.add("mangle ISTIO_INBOUND", "%s -j ISTIO_TPROXY", match)
		} else {
			w.add("nat ISTIO_INBOUND", "%s -j ISTIO_IN_REDIRECT", match)
		}
	}
	for _, p := range w.InboundPorts.Ports {
		capture("-p tcp --dport " + xtablesPorts(p))
	}
	if w.InboundPorts.All {
		for _, p := range w.InboundExcludePorts {
			w.add(table+" ISTIO_INBOUND", "-p tcp --dport %s -j RETURN", xtablesPorts(p))
		}
		capture("-p tcp")
	}
}

func (w *istioWriter) outputRules() {
	for _, p := range w.OutboundExcludePorts {
		w.add("nat ISTIO_OUTPUT", "-p tcp --dport %s -j RETURN", xtablesPorts(p))
		w.add("nat ISTIO_OUTPUT", "-p udp --dport %s -j RETURN", xtablesPorts(p))
	}
	w.add("nat ISTIO_OUTPUT", "-s %s -o lo -j RETURN", w.passthrough)
	for _, uid := range w.ProxyUIDs {
		w.ownerRules("--uid-owner "+uid.String(), w.dns)
	}
	for _, gid := range w.ProxyGIDs {
		w.ownerRules("--gid-owner "+gid.String(), false)
	}
	w.ownerGroupRules()
	if w.dns {
		w.dnsRules()
	}
	w.add("nat ISTIO_OUTPUT", "-d %s -j RETURN", w.loopback)
	for _, cidr := range w.excluded {
		w.add("nat ISTIO_OUTPUT", "-d %s -j RETURN", cidr)
	}
	for _, p := range w.OutboundPorts {
		w.add("nat ISTIO_OUTPUT", "-p tcp --dport %s -j ISTIO_REDIRECT", xtablesPorts(p))
	}
	destinations := []string{}
	if w.OutboundCIDRs.All {
		destinations = append(destinations, "")
	}
	for _, cidr := range w.included {
		destinations = append(destinations, "-d "+cidr)
	}
	for _, d := range destinations {
		for _, n := range w.RerouteInterfaces {
			w.insert("nat PREROUTING", "%s -i %s -j ISTIO_REDIRECT", d, xtablesName(n))
		}
		w.add("nat ISTIO_OUTPUT", "%s -j ISTIO_REDIRECT", d)
	}
}

// ownerRules adds the three rules of one user or group of the proxy.
func (w *istioWriter) ownerRules(match string, exemptDNS bool) {
	exempt := fmt.Sprintf("! --dport %d", w.TunnelPort)
	if exemptDNS {
		exempt = fmt.Sprintf("-m multiport ! --dports 53,%d", w.TunnelPort)
	}
	w.add("nat ISTIO_OUTPUT", "! -d %s -o lo -p tcp %s -m owner %s -j ISTIO_IN_REDIRECT",
		w.loopback, exempt, match)
	switch {
	case w.loopbackIncluded:
	case w.dns:
		w.add("nat ISTIO_OUTPUT", "-o lo -p tcp ! --dport 53 -m owner ! %s -j RETURN", match)
	default:
		w.add("nat ISTIO_OUTPUT", "-o lo -m owner ! %s -j RETURN", match)
	}
	w.add("nat ISTIO_OUTPUT", "-m owner %s -j RETURN", match)
}

func (w *istioWriter) ownerGroupRules() {
	if w.OwnerGroups.All {
		for _, gid := range w.OwnerGroupsExclude {
			w.add("nat ISTIO_OUTPUT", "-m owner --gid-owner %s -j RETURN", gid)
		}
		return
	}
	var otherGroups strings.Builder
	for _, gid := range w.OwnerGroups.IDs {
		fmt.Fprintf(&otherGroups, "-m owner ! --gid-owner %s ", gid)
	}
	w.add("nat ISTIO_OUTPUT", "%s-j RETURN", otherGroups.String())
}

func (w *istioWriter) dnsRules() {
	w.add("raw OUTPUT", "-j ISTIO_OUTPUT_DNS")
	owners := []string{}
	for _, uid := range w.ProxyUIDs {
		owners = append(owners, "--uid-owner "+uid.String())
	}
	for _, gid := range w.ProxyGIDs {
		owners = append(owners, "--gid-owner "+gid.String())
	}
	for _, owner := range owners {
		w.add("raw ISTIO_OUTPUT_DNS", "-p udp --dport 53 -m owner %s -j CT --zone 1", owner)
		w.add("raw ISTIO_OUTPUT_DNS", "-p udp --sport 15053 -m owner %s -j CT --zone 2", owner)
	}
	servers := []string{}
	if w.DNS.All {
		servers = append(servers, "")
	}
	servers = append(servers, w.servers...)
	if len(servers) == 0 {
		return
	}
	w.add("nat ISTIO_OUTPUT", "-j ISTIO_OUTPUT_DNS")
	w.add("raw PREROUTING", "-j ISTIO_INBOUND")
	with := func(side, server string) string {
		if server == "" {
			return ""
		}
		return side + " " + server
	}
	for _, protocol := range []string{"tcp", "udp"} {
		for _, s := range servers {
			w.add("nat ISTIO_OUTPUT_DNS", "%s -p %s --dport 53 -j REDIRECT --to-ports 15053",
				with("-d", s), protocol)
		}
	}
	for _, s := range servers {
		w.add("raw ISTIO_OUTPUT_DNS", "%s -p udp --dport 53 -j CT --zone 2", with("-d", s))
		w.add("raw ISTIO_INBOUND", "%s -p udp --sport 53 -j CT --zone 1", with("-s", s))
	}
}

func (w *istioWriter) tproxyRules() {
	inbound := w.lines["mangle ISTIO_INBOUND"]
	w.lines["mangle ISTIO_INBOUND"] = append([]string{
		fmt.Sprintf("-p tcp -m mark --mark %d -j RETURN", w.TProxyMark),
		fmt.Sprintf("-s %s -i lo -p tcp -j RETURN", w.passthrough),
		fmt.Sprintf("-i lo -p tcp -m mark ! --mark %d -j RETURN", rules.SelfCallMark),
	}, inbound...)
	const masks = "--nfmask 0xffffffff --ctmask 0xffffffff"
	w.add("mangle PREROUTING", "-p tcp -m mark --mark %d -j CONNMARK --save-mark "+masks,
		w.TProxyMark)
	w.add("mangle OUTPUT", "-o lo -p tcp -m mark --mark %d -j RETURN", w.TProxyMark)
	for _, uid := range w.ProxyUIDs {
		w.add("mangle OUTPUT",
			"! -d %s -o lo -p tcp -m owner --uid-owner %s -j MARK --set-xmark 0x53a/0xffffffff",
			w.loopback, uid)
	}
	for _, gid := range w.ProxyGIDs {
		w.add("mangle OUTPUT",
			"! -d %s -o lo -p tcp -m owner --gid-owner %s -j MARK --set-xmark 0x53a/0xffffffff",
			w.loopback, gid)
	}
	w.add("mangle OUTPUT", "-p tcp -m connmark --mark %d -j CONNMARK --restore-mark "+masks,
		w.TProxyMark)
}

func TestReferenceEqualsRecordedRules(t *testing.T) {
	for _, c := range istioCases(t) {
		if leftovers[c.name] != "" || c.onlyCleansUp() {
			continue
		}
		want, got := c.ruleset, istioReference(c.redirect)
		for _, d := range rules.Compare(onlyRules(want), onlyRules(got)) {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// onlyRules returns the tables and chains that have rules, without the routing.
func onlyRules(rs rules.Ruleset) rules.Ruleset {
	var filled rules.Ruleset
	for _, table := range rs.Tables {
		table.Chains = slices.DeleteFunc(slices.Clone(table.Chains), func(c rules.Chain) bool {
			return len(c.Rules) == 0
		})
		if len(table.Chains) > 0 {
			filled.Tables = append(filled.Tables, table)
		}
	}
	return filled
}
