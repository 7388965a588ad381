package nft

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// encodedVerdict encodes a verdict. chain is empty for verdicts other than jump and goto.
func encodedVerdict(code int32, chain string) []byte {
	var m messages
	m.addNumber(unix.NFTA_VERDICT_CODE, uint32(code))
	if chain != "" {
		m.addText(unix.NFTA_VERDICT_CHAIN, chain)
	}
	return m.buf
}

// FuzzDecodeVerdictMap checks that the decoded rules of any verdict map are complete: each has a
// verdict or an unknown expression, and the handle of the original rule. A map without effect needs
// neither a verdict nor an unknown expression.
func FuzzDecodeVerdictMap(f *testing.F) {
	f.Add([]byte{0, 80}, []byte{0, 81}, encodedVerdict(1, ""), encodedVerdict(0, ""), false)
	f.Add([]byte{0, 80}, []byte{1, 81}, encodedVerdict(unix.NFT_JUMP, "other"),
		encodedVerdict(unix.NFT_CONTINUE, ""), true)
	f.Add([]byte{0, 80}, []byte{}, encodedVerdict(unix.NFT_GOTO, "other"), []byte{1, 2, 3}, true)
	f.Fuzz(func(t *testing.T, first, second, firstVerdict, secondVerdict []byte, interval bool) {
		sets := decodedSets{"map": {
			interval: interval, elements: []element{{key: first}, {key: second}},
			verdicts: map[string]attributes{
				string(first): firstVerdict, string(second): secondVerdict,
			},
		}}
		// If every verdict continues or ends the rule, the map has no effect.
		noEffect := true
		for _, v := range sets["map"].verdicts {
			v, err := decodeVerdict(v)
			noEffect = noEffect && err == nil && v.action == nil
		}
		for _, r := range decodeAlone(rules.Inet, sets, verdictMapRule()) {
			if r.Handle != 7 {
				t.Errorf("handle %d of %s, want 7", r.Handle, &r)
			}
			_, isUnknown := r.Matches[len(r.Matches)-1].(rules.Unknown)
			if len(r.Actions) != 1 && !isUnknown && !noEffect {
				t.Errorf("%s, want a rule with a verdict or an unknown expression", &r)
			}
		}
	})
}

// verdictMapRule returns "tcp dport vmap @map", with handle 7.
func verdictMapRule() attributes {
	var m messages
	m.addAttr(unix.NFTA_RULE_HANDLE, []byte{0, 0, 0, 0, 0, 0, 0, 7})
	return append(m.buf, dumpedRule(writePortVerdictMap)...)
}

// writePortVerdictMap encodes the expressions of "tcp dport vmap @map".
func writePortVerdictMap(e *encoder) {
	e.meta(unix.NFT_META_L4PROTO)
	e.cmp(false, []byte{byte(rules.TCP)})
	e.payload(destinationPort)
	writeLookup(e, "map", true)
}

// TestExpressionsAfterAVerdictMapAreDecoded covers a rule that no nft command creates, but that the
// kernel accepts.
func TestExpressionsAfterAVerdictMapAreDecoded(t *testing.T) {
	rule := dumpedRule(func(e *encoder) {
		writePortVerdictMap(e)
		e.verdict(0, "")
	})
	sets := decodedSets{"map": {
		elements: []element{{key: portBytes(80)}},
		verdicts: map[string]attributes{string(portBytes(80)): encodedVerdict(1, "")},
	}}
	got := decodeAlone(rules.Inet, sets, rule)
	const want = "meta l4proto tcp unknown(lookup: not the last expression) drop"
	if len(got) != 1 || got[0].String() != want {
		t.Errorf("decoded as %v, want %s", got, want)
	}
}

// TestVerdictMapOfMarksReadsTheMarkOnce checks that a packet does not also match the second key if
// the chain of the first key sets the mark to the second key.
func TestVerdictMapOfMarksReadsTheMarkOnce(t *testing.T) {
	one, two := hostBytes(1), hostBytes(2)
	jump, goTo := encodedVerdict(unix.NFT_JUMP, "c"), encodedVerdict(unix.NFT_GOTO, "c")
	drop := encodedVerdict(0, "")
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
		rule := dumpedRule(func(e *encoder) {
			e.meta(key)
			writeLookup(e, "map", true)
		})
		var got []string
		for _, r := range decodeAlone(rules.Inet, sets, rule) {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(row.wantTexts, got); diff != "" {
			t.Errorf("%s, -want +got\n%s", row.name, diff)
		}
	}
}

// decodeAlone decodes a rule with the whole budget of a read.
func decodeAlone(family rules.Family, sets decodedSets, a attributes) []rules.Rule {
	budget := maxExpansion
	return decodeRules(&budget, family, sets, rawRule{attrs: a})
}

// TestNegatedSetWithASocketFieldIsNotModeled covers the lookup of a property of the packet's socket
// in a set with several fields. The kernel ends the rule for a packet without the property
// (nft_socket_eval in net/netfilter/nft_socket.c), but the model cannot exclude this packet from a
// negated lookup.
func TestNegatedSetWithASocketFieldIsNotModeled(t *testing.T) {
	cgroup := loadedField(fieldCgroup, 8, "socket cgroupv2 level 1")
	cgroup.constant = []byte{1}
	transparent := loadedField(fieldTransparentSocket, 1, "socket transparent")
	mark, _ := metaField(unix.NFT_META_MARK)
	for _, row := range []struct {
		socket  operand
		key     []byte
		lengths []int
	}{
		{cgroup, []byte{1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0}, []int{8, 4}},
		{transparent, []byte{1, 0, 0, 0, 5, 0, 0, 0}, []int{1, 4}},
	} {
		for _, negated := range []bool{false, true} {
			d := ruleDecoder{}
			set := &decodedSet{
				interval: true, fieldLengths: row.lengths, keyLength: len(row.key),
				elements: []element{{key: row.key}},
			}
			_, ok := d.setMatches([]operand{row.socket, mark}, negated, values{set: set})
			if ok == negated {
				t.Errorf("%s, negated %t: represented by the model: %t, want %t", row.socket, negated,
					ok, !negated)
			}
		}
	}
}
