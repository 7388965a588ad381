package nftlist

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// matches decodes a comparison; it returns nil if it is unsupported.
func (d *decoder) matches(op string, left, right json.RawMessage) []rules.Match {
	key := keyOf(left)
	if key == "" {
		return maskedMatch(op, left, right)
	}
	if key == "ct state" {
		return stateMatch(op, right)
	}
	if op != "==" && op != "!=" {
		return nil
	}
	values := d.values(right)
	if len(values) == 0 {
		return nil
	}
	not := op == "!="
	switch key {
	case "meta nfproto":
		return familyMatch(not, values)
	case "meta l4proto":
		return protocolMatch(not, values)
	case "ip protocol":
		if m := protocolMatch(not, values); m != nil {
			return append([]rules.Match{rules.MatchFamily{Family: rules.IPv4}}, m...)
		}
	case "meta iifname", "meta oifname":
		return interfaceMatch(key == "meta oifname", not, values)
	case "meta skuid", "meta skgid":
		if ids, ok := numbers[uint32](values); ok {
			return []rules.Match{rules.MatchOwner{
				Group: key == "meta skgid", Not: not, IDs: rules.Normalise(ids),
			}}
		}
	case "meta mark", "ct mark":
		if marks, ok := numbers[uint32](values); ok {
			return markMatch(key == "ct mark", not, marks)
		}
	case "ip saddr", "ip daddr", "ip6 saddr", "ip6 daddr":
		return addressMatch(key, not, values)
	case "tcp sport", "tcp dport", "udp sport", "udp dport", "th sport", "th dport":
		return d.portMatch(key, not, values)
	}
	return nil
}

// A span is a value or a range in JSON.
type span struct{ first, last json.RawMessage }

// values returns the values of the right side of a comparison: one, or the elements of a set. It
// returns nil if they are unknown.
func (d *decoder) values(right json.RawMessage) []span {
	var name string
	if json.Unmarshal(right, &name) == nil && strings.HasPrefix(name, "@") {
		set, ok := d.in.sets[place{d.at.family, d.at.table, name[1:]}]
		if !ok || d.in.changed[name[1:]] || changes(set.Flags) || len(set.Timeout) > 0 {
			return nil
		}
		return spans(set.Elements)
	}
	var anonymous struct {
		Set []json.RawMessage `json:"set"`
	}
	if exactly(right, &anonymous) && anonymous.Set != nil {
		return spans(anonymous.Set)
	}
	return spans([]json.RawMessage{right})
}

// changes reports whether, according to its flags, elements of a set may be added and removed at
// run time.
func changes(flags json.RawMessage) bool {
	text := string(flags)
	return strings.Contains(text, "timeout") || strings.Contains(text, "dynamic") ||
		strings.Contains(text, "eval")
}

// spans parses elements; it returns nil if one of them is not a value, a range or a prefix.
func spans(elements []json.RawMessage) []span {
	var list []span
	for _, e := range elements {
		var bounds struct {
			Range []json.RawMessage `json:"range"`
		}
		var prefix struct {
			Prefix struct {
				Addr netip.Addr `json:"addr"`
				Len  *int       `json:"len"`
			} `json:"prefix"`
		}
		switch {
		case isScalar(e):
			list = append(list, span{e, e})
		case exactly(e, &bounds) && len(bounds.Range) == 2 && isScalar(bounds.Range[0]) &&
			isScalar(bounds.Range[1]):
			list = append(list, span{bounds.Range[0], bounds.Range[1]})
		case exactly(e, &prefix) && prefix.Prefix.Len != nil && prefix.Prefix.Addr.IsValid():
			p, err := prefix.Prefix.Addr.Prefix(*prefix.Prefix.Len)
			if err != nil {
				return nil
			}
			r := netipx.RangeOfPrefix(p)
			first, _ := json.Marshal(r.From())
			last, _ := json.Marshal(r.To())
			list = append(list, span{first, last})
		default:
			return nil
		}
	}
	return list
}

func isScalar(e json.RawMessage) bool {
	return len(e) > 0 && (e[0] == '"' || e[0] >= '0' && e[0] <= '9')
}

// words returns single values that are strings.
func words(values []span) ([]string, bool) {
	list := make([]string, len(values))
	for i, v := range values {
		if string(v.first) != string(v.last) || json.Unmarshal(v.first, &list[i]) != nil {
			return nil, false
		}
	}
	return list, true
}

// numbers returns ranges of numbers. Names, such as those of users and services, are unsupported.
func numbers[T uint16 | uint32](values []span) ([]rules.Range[T], bool) {
	list := make([]rules.Range[T], len(values))
	for i, v := range values {
		r := &list[i]
		if json.Unmarshal(v.first, &r.First) != nil || json.Unmarshal(v.last, &r.Last) != nil ||
			r.First > r.Last {
			return nil, false
		}
	}
	return list, true
}

func familyMatch(not bool, values []span) []rules.Match {
	if len(values) != 1 || string(values[0].first) != string(values[0].last) {
		return nil
	}
	is, other := rules.IPv4, rules.IPv6
	switch string(values[0].first) {
	case `"ipv4"`, "2": // NFPROTO_IPV4
	case `"ipv6"`, "10":
		is, other = other, is
	default:
		return nil
	}
	if not {
		is = other
	}
	return []rules.Match{rules.MatchFamily{Family: is}}
}

func protocolMatch(not bool, values []span) []rules.Match {
	var protocols []rules.Protocol
	for _, v := range values {
		if string(v.first) != string(v.last) {
			return nil
		}
		p, err := rules.ParseProtocol(strings.Trim(string(v.first), `"`))
		if err != nil {
			return nil
		}
		protocols = append(protocols, p)
	}
	slices.Sort(protocols)
	return []rules.Match{rules.MatchProtocol{Not: not, Protocols: slices.Compact(protocols)}}
}

func interfaceMatch(out, not bool, values []span) []rules.Match {
	names, ok := words(values)
	if !ok {
		return nil
	}
	m := rules.MatchInterface{Out: out, Not: not}
	for _, name := range names {
		base, isPrefix := strings.CutSuffix(name, "*")
		if base == "" || strings.ContainsAny(base, `*\`) {
			return nil
		}
		m.Names = append(m.Names, rules.InterfaceName{Name: base, Prefix: isPrefix})
	}
	slices.SortFunc(m.Names, func(a, b rules.InterfaceName) int {
		return strings.Compare(a.String(), b.String())
	})
	return []rules.Match{m}
}

func markMatch(conntrack, not bool, marks []rules.Range[uint32]) []rules.Match {
	if len(marks) == 1 && marks[0].IsSingle() {
		return []rules.Match{rules.MatchMark{
			Conntrack: conntrack, Not: not, Value: marks[0].First, Mask: ^uint32(0),
		}}
	}
	return []rules.Match{rules.MatchMarkRange{
		Conntrack: conntrack, Not: not, Values: rules.Normalise(marks),
	}}
}

func addressMatch(key string, not bool, values []span) []rules.Match {
	family, side := rules.IPv4, rules.Source
	if strings.HasPrefix(key, "ip6 ") {
		family = rules.IPv6
	}
	if strings.HasSuffix(key, "daddr") {
		side = rules.Destination
	}
	var ranges []netipx.IPRange
	for _, v := range values {
		var first, last netip.Addr
		if json.Unmarshal(v.first, &first) != nil || json.Unmarshal(v.last, &last) != nil {
			return nil
		}
		r := netipx.IPRangeFrom(first, last)
		if !r.IsValid() || rules.FamilyOf(first) != family || first.Zone() != "" {
			return nil
		}
		ranges = append(ranges, r)
	}
	return []rules.Match{rules.MatchAddr{
		Side: side, Not: not, Ranges: rules.NormaliseAddrs(ranges),
	}}
}

// portMatch decodes a port match: of tcp or udp, which restricts the rule to the protocol, or of
// the protocols to which the rule is already restricted.
func (d *decoder) portMatch(key string, not bool, values []span) []rules.Match {
	ports, ok := numbers[uint16](values)
	if !ok {
		return nil
	}
	side := rules.Source
	if strings.HasSuffix(key, "dport") {
		side = rules.Destination
	}
	port := rules.MatchPort{Side: side, Not: not, Ports: rules.Normalise(ports)}
	switch name, _, _ := strings.Cut(key, " "); name {
	case "tcp":
		return []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}, port}
	case "udp":
		return []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}, port}
	}
	if !d.hasPorts() {
		return nil
	}
	return []rules.Match{port}
}

// stateMatch decodes ct state: one state or a set of states.
func stateMatch(op string, right json.RawMessage) []rules.Match {
	var list []json.RawMessage
	var set struct {
		Set []json.RawMessage `json:"set"`
	}
	switch {
	case isScalar(right) && (op == "in" || op == "==" || op == "!="):
		list = []json.RawMessage{right}
	case json.Unmarshal(right, &list) == nil && op == "in":
	case exactly(right, &set) && (op == "==" || op == "!="):
		list = set.Set
	}
	m := rules.MatchState{Not: op == "!="}
	for _, one := range list {
		s, ok := stateOf(one)
		if !ok {
			return nil
		}
		m.States |= rules.States(s)
	}
	if m.States == 0 {
		return nil
	}
	return []rules.Match{m}
}

// stateOf decodes a state: its name, or with nft -n its bit in the register.
func stateOf(text json.RawMessage) (rules.State, bool) {
	var name string
	var number uint32
	isName := json.Unmarshal(text, &name) == nil
	if !isName && json.Unmarshal(text, &number) != nil {
		return 0, false
	}
	// From include/uapi/linux/netfilter/nf_conntrack_common.h, NF_CT_STATE_INVALID_BIT and on.
	for s, bit := range map[rules.State]uint32{
		rules.Invalid: 1, rules.Established: 2, rules.Related: 4, rules.New: 8, rules.Untracked: 64,
	} {
		if isName && s.String() == name || !isName && bit == number {
			return s, true
		}
	}
	return 0, false
}
