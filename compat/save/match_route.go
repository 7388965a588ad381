package save

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchAddrType parses the match addrtype. With --limit-iface-in or --limit-iface-out the match is
// unknown, because the type of an address then depends on the interface.
func (r *moduleReader) matchAddrType() []rules.Match {
	var list []rules.Match
	t := xt.AddrTypeMatch{
		LimitIn:  r.option("--limit-iface-in") != nil,
		LimitOut: r.option("--limit-iface-out") != nil,
	}
	for _, o := range r.options {
		switch o.name {
		case "--src-type", "--dst-type":
			m := rules.MatchAddrType{Not: o.not, Types: r.addrTypes(o.values[0])}
			if o.name == "--dst-type" {
				m.Side = rules.Destination
			}
			t.Types[m.Side], t.Not[m.Side] = m.Types, m.Not
			list = append(list, m)
		default:
			r.isUnknown = true
		}
	}
	r.text = t.String()
	if len(list) == 0 {
		r.fail(r.flag, "--src-type or --dst-type after it")
	}
	return list
}

// addrTypes parses a list of types. It records that the match is unknown if the model does not
// represent the list.
func (r *moduleReader) addrTypes(w word) rules.AddrTypeSet {
	var set rules.AddrTypeSet
	for text := range strings.SplitSeq(w.text, ",") {
		t := rules.AddrType(0)
		for t <= rules.ResolvedType && !strings.HasPrefix(t.String(), strings.ToLower(text)) {
			t++ // like iptables, take the first type that begins with the text
		}
		if t > rules.ResolvedType || text == "" {
			r.fail(w, "types of addresses: a list of UNSPEC, UNICAST, LOCAL, BROADCAST, ANYCAST, "+
				"MULTICAST, BLACKHOLE, UNREACHABLE, PROHIBIT, THROW, NAT and XRESOLVE")
			return 0
		}
		set |= rules.AddrTypes(t)
	}
	r.isUnknown = r.isUnknown || !xt.ModelsAddrTypes(r.family, set)
	return set
}

// addAddrType writes the match addrtype.
func (p *rulePrinter) addAddrType(m rules.MatchAddrType) error {
	names := xt.AddrTypeNames(m.Types)
	switch {
	case names == "":
		return fmt.Errorf("%s: iptables compares one type or more", m)
	case !xt.ModelsAddrTypes(p.table.Family, m.Types):
		return fmt.Errorf(
			"%s: ip6tables has other types, and only local, anycast and multicast are the same", m)
	}
	p.add("-m", "addrtype")
	option := map[rules.Side]string{
		rules.Source: "--src-type", rules.Destination: "--dst-type",
	}[m.Side]
	p.addOption(m.Not, option, names)
	return nil
}

// lookupOptions contains the options of the match rpfilter that change the route lookup.
var lookupOptions = []string{"--loose", "--validmark", "--accept-local"}

// matchRPFilter parses the match rpfilter. In the kernel, a packet received from lo always matches,
// except with --invert.
func (r *moduleReader) matchRPFilter() []rules.Match {
	var kind []string
	for _, flag := range lookupOptions {
		if r.option(flag) != nil {
			kind = append(kind, strings.TrimPrefix(flag, "--"))
		}
	}
	r.rejectNegations()
	m := rules.MatchReversePath{Not: r.option("--invert") != nil, Kind: strings.Join(kind, " ")}
	return []rules.Match{m}
}

// addRPFilter writes the match rpfilter. Its Kind contains the options without their dashes.
func (p *rulePrinter) addRPFilter(m rules.MatchReversePath) error {
	options := []string{"-m", "rpfilter"}
	kinds := strings.Fields(m.Kind)
	var known []string
	for _, flag := range lookupOptions {
		if name := strings.TrimPrefix(flag, "--"); slices.Contains(kinds, name) {
			options, known = append(options, flag), append(known, name)
		}
	}
	if strings.Join(known, " ") != m.Kind {
		return fmt.Errorf("%s: iptables has no such match", m)
	}
	p.add(options...)
	if m.Not {
		p.add("--invert")
	}
	return nil
}
