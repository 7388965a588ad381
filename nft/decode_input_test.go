package nft

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

const (
	connection     = rules.ConnectionInput
	header         = rules.HeaderInput
	packetContents = rules.ContentsInput
	iface          = rules.InterfaceInput
	state          = rules.StateInput
	everything     = rules.AllInputs
)

// TestInputsOfEveryKey covers all expressions of the kernel and all their keys. The test lists the
// inputs of each key that does not depend on every input. Therefore the test fails if the decoder
// restricts the inputs of another key.
func TestInputsOfEveryKey(t *testing.T) {
	check := func(name string, key uint32, a attributes, listed map[uint32]rules.Inputs) {
		t.Helper()
		want, ok := listed[key]
		if !ok {
			want = everything
		}
		d := ruleDecoder{family: rules.IPv4}
		if got := d.expressionInputs(name, a); got != want {
			t.Errorf("%s %d: inputs %b, want %b", name, key, got, want)
		}
	}
	const maxKey = 300 // larger than the keys of any kernel
	byKey := map[string]struct {
		attribute uint16
		listed    map[uint32]rules.Inputs
	}{
		"meta": {unix.NFTA_META_KEY, map[uint32]rules.Inputs{
			unix.NFT_META_LEN: packetContents, unix.NFT_META_PROTOCOL: 0, unix.NFT_META_PRIORITY: state,
			unix.NFT_META_MARK: rules.MarkInput, unix.NFT_META_IIF: 0, unix.NFT_META_OIF: iface,
			unix.NFT_META_IIFNAME: 0, unix.NFT_META_OIFNAME: iface, unix.NFT_META_IIFTYPE: iface,
			unix.NFT_META_OIFTYPE: iface, unix.NFT_META_SKUID: header,
			unix.NFT_META_SKGID: header, unix.NFT_META_SECMARK: state,
			unix.NFT_META_NFPROTO: 0, unix.NFT_META_L4PROTO: 0, unix.NFT_META_PKTTYPE: header,
			unix.NFT_META_CPU: 0, unix.NFT_META_IIFGROUP: 0, unix.NFT_META_OIFGROUP: iface,
			unix.NFT_META_CGROUP: header, unix.NFT_META_PRANDOM: 0, nftMetaIIFKind: 0,
			nftMetaOIFKind: iface, nftMetaTimeNs: 0, nftMetaTimeDay: 0, nftMetaTimeHour: 0,
		}},
		"ct": {unix.NFTA_CT_KEY, map[uint32]rules.Inputs{
			unix.NFT_CT_STATE: connection, unix.NFT_CT_DIRECTION: connection,
			unix.NFT_CT_STATUS: connection | rules.NATInput, unix.NFT_CT_L3PROTOCOL: connection,
			unix.NFT_CT_SRC: connection, unix.NFT_CT_DST: connection,
			unix.NFT_CT_PROTOCOL: connection, unix.NFT_CT_PROTO_SRC: connection,
			unix.NFT_CT_PROTO_DST: connection, unix.NFT_CT_SRC_IP: connection,
			unix.NFT_CT_DST_IP: connection, unix.NFT_CT_SRC_IP6: connection,
			unix.NFT_CT_DST_IP6: connection, unix.NFT_CT_ZONE: connection,
			unix.NFT_CT_HELPER: connection, unix.NFT_CT_ID: connection,
			unix.NFT_CT_PKTS: connection, unix.NFT_CT_BYTES: connection,
			unix.NFT_CT_AVGPKT: connection,
			unix.NFT_CT_MARK:   connection | rules.ConntrackMarkInput,
			unix.NFT_CT_LABELS: connection | state, unix.NFT_CT_SECMARK: connection | state,
			unix.NFT_CT_EXPIRATION: connection | state,
		}},
		"socket": {expr.NFTA_SOCKET_KEY, map[uint32]rules.Inputs{
			expr.NFT_SOCKET_TRANSPARENT: header | connection, expr.NFT_SOCKET_MARK: header | connection,
			expr.NFT_SOCKET_WILDCARD: header | connection, expr.NFT_SOCKET_CGROUPV2: header | connection,
		}},
		"hash": {unix.NFTA_HASH_TYPE, map[uint32]rules.Inputs{
			unix.NFT_HASH_JENKINS: 0, unix.NFT_HASH_SYM: header,
		}},
		"limit": {unix.NFTA_LIMIT_TYPE, func() map[uint32]rules.Inputs {
			all := map[uint32]rules.Inputs{}
			for key := range uint32(maxKey) {
				all[key] = packetContents
			}
			all[unix.NFT_LIMIT_PKTS] = 0
			return all
		}()},
		"fib": {unix.NFTA_FIB_FLAGS, func() map[uint32]rules.Inputs {
			all := map[uint32]rules.Inputs{}
			for flags := range uint32(1 << 6) {
				all[flags] = header
				if flags&unix.NFTA_FIB_F_MARK != 0 {
					all[flags] |= rules.MarkInput
				}
				if flags&unix.NFTA_FIB_F_OIF != 0 {
					all[flags] |= iface
				}
			}
			return all
		}()},
	}
	// withoutKeys contains the inputs of the other expressions, which have no keys. Other tests
	// cover the extensions of xtables and the parts of the packet that payload loads.
	withoutKeys := map[string]rules.Inputs{
		"bitwise": 0, "byteorder": 0, "cmp": 0, "counter": 0, "dynset": 0, "exthdr": packetContents,
		"immediate": 0, "last": 0, "log": 0, "lookup": 0, "numgen": 0, "objref": 0, "osf": header,
		"payload": 0, "quota": packetContents, "range": 0, "match": everything,
	}
	for _, name := range append(slices.Clone(kernelExpressions), "sluice") {
		if kind, ok := byKey[name]; ok {
			for key := range uint32(maxKey) {
				e := &encoder{}
				e.addNumber(kind.attribute, key)
				check(name, key, e.buf, kind.listed)
			}
			continue
		}
		want, ok := withoutKeys[name]
		if !ok {
			want = everything
		}
		check(name, 0, nil, map[uint32]rules.Inputs{0: want})
	}
}

// TestExpressionsWithoutAttributesMayHaveAnyEffect checks that an expression without attributes is
// assumed to have any effect, unless its name bounds its effect.
func TestExpressionsWithoutAttributesMayHaveAnyEffect(t *testing.T) {
	bounded := map[string]string{ // the decoded forms of expressions with a bounded effect
		"cmp": "reads(cmp)?", "range": "reads(range)?", "counter": "counter", "last": "last",
		"log": "log", "notrack": "notrack", "inner": "reads(inner)?", "redir": "redirect",
		"quota": "reads history(quota 0 bytes)", "lookup": "reads(register . register {})?",
		"limit":  "reads varying(limit rate 0/0 seconds burst 0 packets)",
		"dynset": "(dynset @)?", "masq": "translates source(masquerade)",
		"nat":    "translates source(nat: source)?",
		"reject": "reject with icmp net-unreachable",
	}
	for _, name := range append(slices.Clone(kernelExpressions), "sluice") {
		d := ruleDecoder{family: rules.IPv4}
		d.decodeExpression(name, nil)
		r := d.rule
		want, ok := bounded[name]
		if !ok {
			want = "anything"
		}
		var got string
		switch {
		case name == "tproxy": // valid without attributes: it uses the packet's port
			continue
		case len(r.Matches) == 1 && len(r.Actions) == 0:
			got = formatPart(r.Matches[0])
		case len(r.Matches) == 0 && len(r.Actions) == 1:
			got = formatPart(r.Actions[0])
		default:
			got = fmt.Sprint(r)
		}
		if u, isUnknown := unknownOf(r); !ok && isUnknown && u.Effect == rules.AnyEffect {
			continue
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// unknownOf returns the action of a rule with only one action, if the action is unknown.
func unknownOf(r rules.Rule) (rules.Unknown, bool) {
	if len(r.Actions) != 1 {
		return rules.Unknown{}, false
	}
	u, ok := r.Actions[0].(rules.Unknown)
	return u, ok
}
