package nft

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// kernelExpressions contains the names of the expressions that Linux 6.18 registers with
// nft_register_expr in net/netfilter, net/ipv4/netfilter, net/ipv6/netfilter and
// net/bridge/netfilter, and of the expressions in nft_basic_types.
var kernelExpressions = strings.Fields(`
	bitwise byteorder cmp connlimit counter ct dup dynset exthdr fib flow_offload fwd hash immediate inner last limit log lookup masq match
	meta nat notrack numgen objref osf payload queue quota range redir reject rt socket synproxy target tproxy tunnel xfrm`)

// TestEveryExpressionOfTheKernelIsKnown checks that the decoder knows all names, and that the
// running kernel supports at least half of the expressions. The kernel returns ENOENT for an
// expression that it does not support.
func TestEveryExpressionOfTheKernelIsKnown(t *testing.T) {
	for _, name := range kernelExpressions {
		if _, known := kindOfExpression(name); !known {
			t.Errorf("kindOfExpression does not know %s", name)
		}
	}
	ns := netnstest.New(t)
	var missing []string
	for _, name := range append(slices.Clone(kernelExpressions), "sluice") {
		var err error
		if e := ns.Do(func() error { err = tryExpression(name); return nil }); e != nil {
			t.Fatal(e)
		}
		if strings.Contains(fmt.Sprint(err), "no such file") {
			missing = append(missing, name)
		}
	}
	t.Logf("not supported by this kernel: %v", missing)
	if !slices.Contains(missing, "sluice") || len(missing) > len(kernelExpressions)/2 {
		t.Errorf("the kernel does not support %v, want \"sluice\" and at most half of "+
			"kernelExpressions", missing)
	}
}

// tryExpression returns the error with which the kernel rejects a rule that has the expression
// without attributes.
func tryExpression(name string) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.close()
	chain := rules.Chain{Name: "c"}
	e := newEncoder(0)
	e.table = &rules.Table{Family: rules.Inet, Name: "t"}
	e.beginMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, description{})
	e.addText(unix.NFTA_TABLE_NAME, "t")
	e.end()
	e.writeChain(&chain)
	e.beginMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, description{chain: &chain})
	e.addText(unix.NFTA_RULE_TABLE, "t")
	e.addText(unix.NFTA_RULE_CHAIN, "c")
	list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	e.writeExpression(name, func() {})
	// Add an invalid expression: the kernel accepts some expressions without attributes.
	e.writeExpression("cmp", func() {})
	e.endNest(list)
	e.end()
	return c.commit(e.transaction())
}

// dumpedRule returns a rule, encoded as in a dump of the kernel, with the expressions that write
// encodes.
func dumpedRule(write func(*encoder)) attributes {
	e := &encoder{table: &rules.Table{Family: rules.Inet}}
	list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	write(e)
	e.endNest(list)
	return e.buf
}

// writeNumbers encodes an expression with numeric attributes. attrs contains the type of the first
// attribute, its value, the type of the second attribute, and so on.
func writeNumbers(e *encoder, name string, attrs ...uint32) {
	e.writeExpression(name, func() {
		for i := 0; i < len(attrs); i += 2 {
			e.addNumber(uint16(attrs[i]), attrs[i+1])
		}
	})
}

// TestDecodedFormOfRulesThatNoCommandCreates covers rules that the kernel accepts, but that no nft
// command creates.
func TestDecodedFormOfRulesThatNoCommandCreates(t *testing.T) {
	accept := func(e *encoder) { e.verdict(1, "") }
	for _, row := range []struct {
		name  string
		write func(*encoder)
		want  string
	}{
		{"a load of data that a packet may lack ends the rule", func(e *encoder) {
			e.ct(unix.NFT_CT_MARK)
			accept(e)
		}, "reads(ct mark exists) | accept"},
		{"a load of data that every packet has does not end the rule", func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			accept(e)
		}, "| accept"},
		{"a field that was loaded before an action may have changed", func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			writeNumbers(e, "notrack")
			e.cmp(false, hostBytes(1))
			accept(e)
		}, "| notrack [reads(register 0x01000000)?] accept"},
		{"a constant that was loaded before an action has not changed", func(e *encoder) {
			e.immediate(hostBytes(1))
			writeNumbers(e, "notrack")
			e.setMeta(unix.NFT_META_MARK)
		}, "| notrack meta mark set 0x1"},
		{"a counter has no effect", func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			e.writeExpression("counter", func() {})
			e.cmp(false, hostBytes(1))
			accept(e)
		}, "meta mark 0x1 | counter accept"},
		{"an unknown expression may have any effect", func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			writeNumbers(e, "sluice")
			e.cmp(false, hostBytes(1))
			accept(e)
		}, "| anything(sluice) [reads(register 0x01000000)?] accept"},
		{"an nftables expression and an xtables extension in one rule", func(e *encoder) {
			e.ct(unix.NFT_CT_MARK)
			e.cmp(false, hostBytes(1))
			e.writeExpression("match", func() {})
			accept(e)
		}, "| anything(expressions with an extension of xtables)?"},
		{"a random number", func(e *encoder) {
			writeNumbers(e, "numgen", unix.NFTA_NG_DREG, register, unix.NFTA_NG_MODULUS, 2,
				unix.NFTA_NG_TYPE, 1)
			e.bitwise(hostBytes(1), hostBytes(0))
			e.cmp(false, hostBytes(1))
			accept(e)
		}, "reads history(numgen random mod 2 & 0x01000000 0x01000000) | accept"},
		{"packets of the other family continue after NAT", func(e *encoder) {
			e.immediate([]byte{10, 0, 0, 1})
			writeNumbers(e, "nat", unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY,
				unix.NFPROTO_IPV4, unix.NFTA_NAT_REG_ADDR_MIN, register)
			e.verdict(0, "")
		}, "| anything(nat or map: not the last expression) drop"},
		{"a port without a match of the protocol", func(e *encoder) {
			e.immediate(portBytes(80))
			writeNumbers(e, "redir", unix.NFTA_REDIR_REG_PROTO_MIN, register, unix.NFTA_REDIR_FLAGS,
				unix.NF_NAT_RANGE_PROTO_SPECIFIED)
		}, "| anything(redir)"},
		{"a redirection that ignores its port", func(e *encoder) {
			e.meta(unix.NFT_META_L4PROTO)
			e.cmp(false, []byte{unix.IPPROTO_TCP})
			e.immediate(portBytes(80))
			writeNumbers(e, "redir", unix.NFTA_REDIR_REG_PROTO_MIN, register, unix.NFTA_REDIR_FLAGS,
				unix.NF_NAT_RANGE_PERSISTENT)
		}, "meta l4proto tcp | anything(redir)"},
		{"a redirection with an ignored port and no flags", func(e *encoder) {
			e.meta(unix.NFT_META_L4PROTO)
			e.cmp(false, []byte{unix.IPPROTO_TCP})
			e.immediate(portBytes(80))
			writeNumbers(e, "redir", unix.NFTA_REDIR_REG_PROTO_MIN, register, unix.NFTA_REDIR_FLAGS, 0)
		}, "meta l4proto tcp | anything(redir)"},
		{"a masquerade that ignores its port", func(e *encoder) {
			e.meta(unix.NFT_META_L4PROTO)
			e.cmp(false, []byte{unix.IPPROTO_TCP})
			e.immediate(portBytes(80))
			writeNumbers(e, "masq", unix.NFTA_MASQ_REG_PROTO_MIN, register)
		}, "meta l4proto tcp | translates source(masq: source)"},
		{"a redirection to port 0", func(e *encoder) {
			e.meta(unix.NFT_META_L4PROTO)
			e.cmp(false, []byte{unix.IPPROTO_TCP})
			writeNumbers(e, "redir", unix.NFTA_REDIR_FLAGS, unix.NF_NAT_RANGE_PROTO_SPECIFIED)
		}, "meta l4proto tcp | anything(redir)"},
		{"a masquerade to port 0", func(e *encoder) {
			writeNumbers(e, "masq", unix.NFTA_MASQ_FLAGS, unix.NF_NAT_RANGE_PROTO_SPECIFIED)
		}, "| translates source(masq: source)"},
		{"DNAT to port 0", func(e *encoder) {
			e.immediate([]byte{10, 0, 0, 1})
			writeNumbers(e, "nat", unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY,
				unix.NFPROTO_IPV4, unix.NFTA_NAT_REG_ADDR_MIN, register, unix.NFTA_NAT_FLAGS,
				unix.NF_NAT_RANGE_PROTO_SPECIFIED)
		}, "| anything(nat)"},
		{"DNAT to the unspecified address", func(e *encoder) {
			e.meta(unix.NFT_META_L4PROTO)
			e.cmp(false, []byte{unix.IPPROTO_TCP})
			e.immediate(portBytes(80))
			writeNumbers(e, "nat", unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY,
				unix.NFPROTO_IPV4, unix.NFTA_NAT_REG_PROTO_MIN, register, unix.NFTA_NAT_FLAGS,
				unix.NF_NAT_RANGE_MAP_IPS)
		}, "meta l4proto tcp | anything(nat)"},
		{"SNAT to port 0", func(e *encoder) {
			e.immediate([]byte{10, 0, 0, 1})
			writeNumbers(e, "nat", unix.NFTA_NAT_TYPE, unix.NFT_NAT_SNAT, unix.NFTA_NAT_FAMILY,
				unix.NFPROTO_IPV4, unix.NFTA_NAT_REG_ADDR_MIN, register, unix.NFTA_NAT_FLAGS,
				unix.NF_NAT_RANGE_PROTO_SPECIFIED)
		}, "meta nfproto ipv4 | translates source(nat: source)"},
		{"a comparison of bytes after the field", func(e *encoder) {
			e.meta(unix.NFT_META_PRIORITY)
			e.cmp(false, make([]byte, 8))
			accept(e)
		}, "reads(meta priority 0x0000000000000000)? | accept"},
		{"a mask of bytes after the field", func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			e.bitwise(make([]byte, 8), make([]byte, 8))
			e.cmp(false, make([]byte, 8))
			accept(e)
		}, "reads(meta mark & 0x0000000000000000 0x0000000000000000)? | accept"},
		{"tproxy applies to TCP and UDP only", func(e *encoder) {
			e.immediate(portBytes(80))
			writeNumbers(e, "tproxy", expr.NFTA_TPROXY_REG_PORT, register)
		}, "meta l4proto { tcp, udp } | tproxy to :80"},
		{"two masks of a mark", func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			e.bitwise(hostBytes(0xff), hostBytes(0x10))
			e.bitwise(hostBytes(0xf0), hostBytes(0x1))
			e.cmp(false, hostBytes(0x31))
			accept(e)
		}, "meta mark & 0xf0 == 0x20 | accept"},
		{"a name with data after its terminating zero", func(e *encoder) {
			e.meta(unix.NFT_META_IIFNAME)
			e.cmp(false, []byte("lo\x00x"))
			accept(e)
		}, "reads(iifname 0x6c6f0078) | accept"},
		{"4 bytes of an IPv6 address are not an IPv4 address", func(e *encoder) {
			e.family(rules.IPv6)
			e.payload(payload{unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 4})
			e.bitwise([]byte{255, 255, 0, 0}, make([]byte, 4))
			e.cmp(false, []byte{10, 0, 0, 0})
			accept(e)
		}, "meta nfproto ipv6 reads(ip6 saddr & 0xffff0000 0x0a000000) | accept"},
		{"the next header of IPv6 may differ from the transport protocol", func(e *encoder) {
			e.family(rules.IPv6)
			e.payload(ipv4Protocol)
			e.cmp(false, []byte{6})
			e.payload(destinationPort)
			e.cmp(false, portBytes(80))
			accept(e)
		}, "meta nfproto ipv6 reads(@nh,72,8 0x06) reads(th dport 0x0050) | accept"},
		{"two families match no packet", func(e *encoder) {
			e.family(rules.IPv4)
			e.family(rules.IPv6)
			e.payload(addrField(rules.IPv4, rules.Source))
			e.cmp(false, []byte{10, 0, 0, 1})
			accept(e)
		}, "meta nfproto ipv6 ip saddr 10.0.0.1 | accept"},
		{"two protocols match no packet", func(e *encoder) {
			for _, p := range []byte{6, 132} {
				e.meta(unix.NFT_META_L4PROTO)
				e.cmp(false, []byte{p})
			}
			e.payload(destinationPort)
			e.cmp(false, portBytes(80))
			accept(e)
		}, "meta l4proto tcp meta l4proto sctp reads(th dport 0x0050) | accept"},
		{"a verdict that ends the rule", func(e *encoder) {
			e.verdict(unix.NFT_BREAK, "")
			accept(e)
		}, "reads(break) | accept"},
		{"an inner packet", func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			writeNumbers(e, "inner")
			e.cmp(false, hostBytes(1))
			accept(e)
		}, "reads(inner)? reads(register 0x01000000)? | accept"},
	} {
		r := decodeRule(rules.Inet, nil, dumpedRule(row.write))
		if diff := cmp.Diff(row.want, formatRule(r)); diff != "" {
			t.Errorf("%s, -want +got\n%s", row.name, diff)
		}
	}
}

// writeLookup encodes a lookup in a verdict map or in a set.
func writeLookup(e *encoder, set string, isVerdictMap bool) {
	e.writeExpression("lookup", func() {
		e.addText(unix.NFTA_LOOKUP_SET, set)
		e.addNumber(unix.NFTA_LOOKUP_SREG, register)
		if isVerdictMap {
			e.addNumber(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
		}
	})
}

// unknownsOf returns the unknown conditions and actions of a rule, in order.
func unknownsOf(r rules.Rule) []rules.Unknown {
	var list []rules.Unknown
	for _, m := range r.Matches {
		if u, ok := m.(rules.Unknown); ok {
			list = append(list, u)
		}
	}
	for _, a := range r.Actions {
		if u, ok := a.(rules.Unknown); ok {
			list = append(list, u)
		}
	}
	return list
}

// TestUnknownsAreComparedByTheirContents compares the unknown conditions and actions of two rules.
// An unknown without data equals no other unknown.
func TestUnknownsAreComparedByTheirContents(t *testing.T) {
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{"snat ip to 1.1.1.1-1.1.1.3", "snat ip to 1.1.1.1-1.1.1.3", true},
		{"snat ip to 1.1.1.1-1.1.1.3", "snat ip to 1.1.1.2-1.1.1.3", false},
		{"masquerade", "masquerade random", false},
		{"masquerade random", "meta l4proto tcp masquerade random", true},
		{
			"meta l4proto tcp masquerade to :80-90", "meta l4proto tcp masquerade to :80-91", false,
		},
		{"snat ip to 1.1.1.1-1.1.1.3 persistent", "snat ip to 1.1.1.1-1.1.1.3", false},
		{
			"snat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }",
			"snat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }", true,
		},
		{
			"snat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }",
			"snat ip to ip saddr map { 1.1.1.1 : 2.2.2.3 }", false,
		},
		{"ip ttl 5 accept", "ip ttl 5 accept", true},
		{"ip ttl 5 accept", "ip ttl 6 accept", false},
		{"ip ttl { 5, 6 } accept", "ip ttl { 6, 5 } accept", true},
		{"ip ttl { 5, 6 } accept", "ip ttl { 5, 7 } accept", false},
		{"ip ttl { 5-6 } accept", "ip ttl { 5-7 } accept", false},
		{"meta mark @marks accept", "meta mark @marks accept", false},
		{
			"meta mark set tcp dport map { 80 : 1 } accept",
			"meta mark set tcp dport map { 80 : 1 } accept", true,
		},
		{
			"meta mark set tcp dport map { 80 : 1 } accept",
			"meta mark set tcp dport map { 80 : 2 } accept", false,
		},
		{
			"limit rate 5/second tcp dport 80 accept", "limit rate 5/second tcp dport 80 accept",
			true,
		},
		{
			"limit rate 5/second tcp dport 80 accept", "limit rate 6/second tcp dport 80 accept",
			false,
		},
		{
			"limit rate 5/second tcp dport 80 accept", "tcp dport 80 limit rate 5/second accept",
			false,
		},
		{"numgen random mod 2 0 accept", "numgen random mod 2 0 accept", true},
		{"numgen random mod 2 0 accept", "numgen inc mod 2 0 accept", false},
		{"jhash ip saddr mod 2 seed 5 0 accept", "jhash ip daddr mod 2 seed 5 0 accept", false},
		// The kernel chooses a random seed for each rule.
		{"jhash ip saddr mod 2 0 accept", "jhash ip saddr mod 2 0 accept", false},
		{"limit name slow accept", "limit name slow accept", false},
	} {
		ns := netnstest.New(t)
		load(t, ns, "table inet t { limit slow { rate 1/second; }; "+foreignObjects+`
			set marks { type mark; flags dynamic; }
			chain c { type nat hook postrouting priority 100; `+row.a+"; "+row.b+"; }; }")
		rs, err := ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		list := rs.Tables[0].Chain("c").Rules
		a, b := unknownsOf(list[0]), unknownsOf(list[1])
		if len(a) == 0 || len(b) == 0 {
			t.Errorf("%s | %s: want an unknown condition or action in each rule", &list[0],
				&list[1])
			continue
		}
		incomparable := func(u rules.Unknown) bool { return u.Data == rules.NoData }
		if same := slices.Equal(a, b) && !slices.ContainsFunc(a, incomparable); same != row.same {
			t.Errorf("%s | %s: equal unknowns: %t, want %t\n%q\n%q", row.a, row.b, same,
				row.same, a, b)
		}
	}
}

// TestExpansionOfMapsIsBounded covers many rules that use one large map or set.
func TestExpansionOfMapsIsBounded(t *testing.T) {
	const elements, ruleCount = 1 << 15, 200
	verdicts := &decodedSet{keyLength: 4, verdicts: map[string]attributes{}}
	pairs := &decodedSet{keyLength: 8, interval: true, fieldLengths: []int{4, 4}}
	marks := &decodedSet{keyLength: 4}
	for i := range uint32(elements) {
		key := hostBytes(i)
		verdicts.elements = append(verdicts.elements, element{key: key})
		verdicts.verdicts[string(key)] = encodedVerdict(unix.NFT_GOTO, fmt.Sprint(i))
		pairs.elements = append(pairs.elements, element{key: slices.Concat(key, key)})
		marks.elements = append(marks.elements, element{key: key})
	}
	sets := decodedSets{"verdicts": verdicts, "pairs": pairs, "marks": marks}
	// lookup returns a rule that looks up the mark in the set, or the pair of the mark and itself
	// in "pairs".
	lookup := func(set string, isVerdictMap bool) attributes {
		return dumpedRule(func(e *encoder) {
			e.meta(unix.NFT_META_MARK)
			writeNumbers(e, "meta", unix.NFTA_META_KEY, unix.NFT_META_MARK, unix.NFTA_META_DREG,
				unix.NFT_REG32_01)
			writeLookup(e, set, isVerdictMap)
			if !isVerdictMap {
				e.verdict(1, "")
			}
		})
	}
	budget, branches, unknown := maxExpansion, 0, 0
	for range ruleCount {
		decoded := decodeRules(&budget, rules.Inet, sets, rawRule{attrs: lookup("verdicts", true)})
		branches += len(decoded)
		unknown += len(unknownsOf(decoded[0]))
	}
	if branches > maxExpansion || branches < elements || unknown == 0 {
		t.Errorf("%d rules were decoded as %d rules with %d unknowns; want %d to %d rules, and at "+
			"least 1 unknown", ruleCount, branches, unknown, elements, maxExpansion)
	}
	budget = maxExpansion
	var first []rules.Match
	for i := range ruleCount {
		r := decodeRules(&budget, rules.Inet, sets, rawRule{attrs: lookup("pairs", false)})[0]
		tuple, ok := r.Matches[0].(rules.MatchTuple)
		if !ok || len(tuple.Alternatives) != elements {
			t.Fatalf("rule %d: %d alternatives, want %d", i, len(tuple.Alternatives), elements)
		}
		m := decodeRules(&budget, rules.Inet, sets,
			rawRule{attrs: lookup("marks", false)})[0].Matches[0].(rules.MatchMarkRange)
		if i == 0 {
			first = []rules.Match{tuple, m}
			continue
		}
		if &tuple.Alternatives[0] != &first[0].(rules.MatchTuple).Alternatives[0] ||
			&m.Values[0] != &first[1].(rules.MatchMarkRange).Values[0] {
			t.Fatalf("rule %d has its own copy of a set, want the copy of rule 0", i)
		}
	}
	if used := maxExpansion - budget; used > 4*elements {
		t.Errorf("the rules used %d of the budget, want at most %d", used, 4*elements)
	}
	large := &decodedSet{
		keyLength: 8, fieldLengths: []int{4, 4}, lists: []attributes{{}}, listedCount: maxMapElements + 1,
	}
	if _, err := large.keys(); err == nil {
		t.Error("a set of several fields with too many elements was decoded, want an error")
	}
}
