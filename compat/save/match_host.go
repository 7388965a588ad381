package save

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// addrType parses the match addrtype. With an option for interfaces the match is unknown, because
// the type of an address then depends on the interface.
func (r *moduleReader) addrType() []rules.Match {
	var list []rules.Match
	for _, o := range r.options {
		switch o.name {
		case "--src-type", "--dst-type":
			m := rules.MatchAddrType{Not: o.not, Types: r.addrTypes(o.values[0])}
			if o.name == "--dst-type" {
				m.Side = rules.Destination
			}
			list = append(list, m)
		default:
			r.isUnknown = true
		}
	}
	if len(list) == 0 {
		r.fail(r.flag, "--src-type or --dst-type after it")
	}
	return list
}

// addrTypes parses a list of types. For IPv6 only LOCAL or MULTICAST alone have the meaning of the
// model. The other types overlap and differ from the types of routes, and an address must have all
// types of the list (match_type6 in net/netfilter/xt_addrtype.c).
func (r *moduleReader) addrTypes(w word) rules.AddrTypeSet {
	var set rules.AddrTypeSet
	for text := range strings.SplitSeq(w.text, ",") {
		t, err := rules.ParseAddrType(text)
		if err != nil {
			r.fail(w, "types of addresses: a list of UNSPEC, UNICAST, LOCAL, BROADCAST, ANYCAST, "+
				"MULTICAST, BLACKHOLE, UNREACHABLE, PROHIBIT, THROW, NAT and XRESOLVE")
			return 0
		}
		set |= rules.AddrTypes(t)
	}
	isModeled := set == rules.AddrTypes(rules.Local) || set == rules.AddrTypes(rules.Multicast)
	r.isUnknown = r.isUnknown || r.family == rules.IPv6 && !isModeled
	return set
}

// socket parses the match socket. The model represents only matches of transparent sockets. The
// option --restore-skmark sets the packet's mark.
func (r *moduleReader) socket() []rules.Match {
	var m rules.MatchSocket
	if r.option("--nowildcard") != nil {
		m.Kind = "nowildcard"
	}
	if r.option("--restore-skmark") != nil {
		r.isUnknown, r.effect = true, rules.AnyEffect
	}
	r.isUnknown = r.isUnknown || r.option("--transparent") == nil
	r.rejectNegations()
	return []rules.Match{m}
}

// pathFlags contains the options of the match rpfilter that change the route lookup.
var pathFlags = []string{"--loose", "--validmark", "--accept-local"}

// reversePath parses the match rpfilter. In the kernel, packets of lo always pass, with any
// options.
func (r *moduleReader) reversePath() []rules.Match {
	var kind []string
	for _, flag := range pathFlags {
		if r.option(flag) != nil {
			kind = append(kind, strings.TrimPrefix(flag, "--"))
		}
	}
	r.rejectNegations()
	m := rules.MatchReversePath{Not: r.option("--invert") != nil, Kind: strings.Join(kind, " ")}
	return []rules.Match{m}
}

// rejectNegations reports an error if an option is negated.
func (r *moduleReader) rejectNegations() {
	if i := slices.IndexFunc(r.options, func(o option) bool { return o.not }); i >= 0 {
		r.rejectNegation(r.options[i].flag, true)
	}
}
