package nft

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// FuzzDecodeVerdictMap checks that the rules of any verdict map are complete: each has a verdict or
// an unknown expression, and the handle of the original rule.
func FuzzDecodeVerdictMap(f *testing.F) {
	verdict := func(code int32, chain string) []byte {
		var m messages
		m.addNumber(unix.NFTA_VERDICT_CODE, uint32(code))
		if chain != "" {
			m.addText(unix.NFTA_VERDICT_CHAIN, chain)
		}
		return m.buf
	}
	f.Add([]byte{0, 80}, []byte{0, 81}, verdict(1, ""), verdict(0, ""), false)
	f.Add([]byte{0, 80}, []byte{1, 81}, verdict(unix.NFT_JUMP, "other"),
		verdict(unix.NFT_CONTINUE, ""), true)
	f.Add([]byte{0, 80}, []byte{}, verdict(unix.NFT_GOTO, "other"), []byte{1, 2, 3}, true)
	f.Fuzz(func(t *testing.T, first, second, firstVerdict, secondVerdict []byte, interval bool) {
		sets := decodedSets{"map": {
			interval: interval, elements: []element{{key: first}, {key: second}},
			verdicts: map[string]attributes{
				string(first): firstVerdict, string(second): secondVerdict,
			},
		}}
		// If every verdict continues or ends the rule, the map has no effect.
		none := true
		for _, v := range sets["map"].verdicts {
			v, err := decodeVerdict(v)
			none = none && err == nil && v.action == nil
		}
		for _, r := range decodeAlone(rules.Inet, sets, verdictMapRule()) {
			if r.Handle != 7 {
				t.Errorf("handle %d of %s", r.Handle, &r)
			}
			_, isUnknown := r.Matches[len(r.Matches)-1].(rules.Unknown)
			if len(r.Actions) != 1 && !isUnknown && !none {
				t.Errorf("neither verdict nor unknown: %s", &r)
			}
		}
	})
}

// verdictMapRule returns "tcp dport vmap @map", with handle 7.
func verdictMapRule() []byte {
	e := newEncoder(0)
	e.start = 0
	e.buf = nil
	e.addAttr(unix.NFTA_RULE_HANDLE, []byte{0, 0, 0, 0, 0, 0, 0, 7})
	list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	e.meta(unix.NFT_META_L4PROTO)
	e.cmp(false, []byte{byte(rules.TCP)})
	e.payload(destinationPort)
	e.writeExpression("lookup", func() {
		e.addText(unix.NFTA_LOOKUP_SET, "map")
		e.addNumber(unix.NFTA_LOOKUP_SREG, register)
		e.addNumber(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
	})
	e.endNest(list)
	return e.buf
}

// TestExpressionsAfterAVerdictMapAreDecoded covers a rule that no nft command creates, but that the
// kernel accepts.
func TestExpressionsAfterAVerdictMapAreDecoded(t *testing.T) {
	e := newEncoder(0)
	e.start = 0
	e.buf = nil
	list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	whole := attributes(verdictMapRule()).Get(unix.NFTA_RULE_EXPRESSIONS)
	e.buf = append(e.buf, whole...)
	e.verdict(0, "")
	e.endNest(list)
	var accept messages
	accept.addNumber(unix.NFTA_VERDICT_CODE, 1)
	sets := decodedSets{"map": {
		elements: []element{{key: []byte{0, 80}}},
		verdicts: map[string]attributes{"\x00P": accept.buf},
	}}
	got := decodeAlone(rules.Inet, sets, e.buf)
	if len(got) != 1 || got[0].String() != "meta l4proto tcp unknown(lookup: not the last expression) drop" {
		t.Errorf("%v", got)
	}
}

// TestVerdictMapOfMarksReadsTheMarkOnce checks that a packet does not also match the second key if
// the chain of the first key sets the mark to the second key.
func TestVerdictMapOfMarksReadsTheMarkOnce(t *testing.T) {
	verdict := func(code int32, chain string) []byte {
		var m messages
		m.addNumber(unix.NFTA_VERDICT_CODE, uint32(code))
		m.addText(unix.NFTA_VERDICT_CHAIN, chain)
		return m.buf
	}
	one, two := native.AppendUint32(nil, 1), native.AppendUint32(nil, 2)
	jump, goTo, drop := verdict(unix.NFT_JUMP, "c"), verdict(unix.NFT_GOTO, "c"), verdict(0, "")
	for _, row := range []struct {
		name      string
		first     []byte
		second    []byte
		wantTexts []string
		keyIsUser bool // use the user instead of the mark as the key
	}{
		{
			name: "a jump before another verdict", first: jump, second: drop,
			wantTexts: []string{"unknown(lookup)"},
		},
		{
			name: "a jump after the other verdict", first: drop, second: jump,
			wantTexts: []string{"meta mark 0x1 drop", "meta mark 0x2 jump c"},
		},
		{
			name: "a goto, which does not return", first: goTo, second: drop,
			wantTexts: []string{"meta mark 0x1 goto c", "meta mark 0x2 drop"},
		},
		{
			name: "a user, which rules cannot change", first: jump, second: drop,
			wantTexts: []string{"meta skuid 1 jump c", "meta skuid 2 drop"}, keyIsUser: true,
		},
	} {
		sets := decodedSets{"map": {
			elements: []element{{key: one}, {key: two}},
			verdicts: map[string]attributes{string(one): row.first, string(two): row.second},
		}}
		key := expr.MetaKeyMARK
		if row.keyIsUser {
			key = expr.MetaKeySKUID
		}
		e := newEncoder(0)
		e.start = 0
		e.buf = nil
		list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
		e.meta(key)
		e.writeExpression("lookup", func() {
			e.addText(unix.NFTA_LOOKUP_SET, "map")
			e.addNumber(unix.NFTA_LOOKUP_SREG, register)
			e.addNumber(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
		})
		e.endNest(list)
		var got []string
		for _, r := range decodeAlone(rules.Inet, sets, e.buf) {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(row.wantTexts, got); diff != "" {
			t.Errorf("%s, -want +got\n%s", row.name, diff)
		}
	}
}

// decodeAlone decodes a rule with the whole budget of a table.
func decodeAlone(family rules.Family, sets decodedSets, a attributes) []rules.Rule {
	budget := maxExpansion
	return decodeRules(&budget, family, sets, rawRule{attrs: a})
}

// TestNegatedSetsWithCgroups verifies that the absence of a cgroup in a set of several fields is
// unknown, because a socket above the level does not match (nft_socket_eval in
// net/netfilter/nft_socket.c).
func TestNegatedSetsWithCgroups(t *testing.T) {
	cgroup := loadedField(fieldCgroup, 8, "socket cgroupv2 level 1")
	cgroup.constant = []byte{1}
	mark, _ := metaField(unix.NFT_META_MARK)
	for _, negated := range []bool{false, true} {
		d := ruleDecoder{}
		key := []byte{1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0}
		set := &decodedSet{
			hasSeveralFields: true, keyLength: len(key), elements: []element{{key: key}},
		}
		if _, ok := d.setMatches([]operand{cgroup, mark}, negated, values{set: set}); ok == negated {
			t.Errorf("negated %t: represented %t", negated, ok)
		}
	}
}
