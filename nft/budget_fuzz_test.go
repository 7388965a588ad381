package nft

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// The bounds of decoding and of a query within diff.AgentBudget, including work that the budget
// does not count.
var (
	decodingBound = budgettest.Bound{Processor: 5 * time.Second, Allocated: 512 << 20}
	queryBound    = budgettest.Bound{Processor: 2 * time.Second, Allocated: 256 << 20}
)

// FuzzDecodeWithinBudget checks that the time and memory are bounded for decoding thousands of
// copies of any rule, all of which use one set, and for answering queries about these rules.
func FuzzDecodeWithinBudget(f *testing.F) {
	elements := func(n int) []byte {
		var list []byte
		for i := range n {
			list = appendElement(list, element{
				key: []byte{10, byte(i >> 8), byte(i), byte(i & 1)}, end: i&1 == 1,
			})
		}
		return list
	}
	for _, copies := range []uint16{1, 3000} {
		f.Add(lookupRule("set"), elements(2000), uint16(4), false, copies)
		f.Add(lookupRule("set"), elements(2000), uint16(4), true, copies)
		for _, e := range examples {
			tx, err := Encode(compileWith(e.change))
			if err != nil {
				f.Fatal(err)
			}
			for buf := tx.Bytes(); len(buf) > 0; buf = buf[nlmsg.Align(int(native.Uint32(buf))):] {
				if firstMessageType(buf) == messageType(unix.NFT_MSG_NEWRULE) {
					f.Add(buf[unix.NLMSG_HDRLEN+4:native.Uint32(buf)], elements(10), uint16(4),
						true, copies)
					break
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, rule, list []byte, keyLength uint16, interval bool, copies uint16) {
		if len(rule) > 4<<10 || len(list) > 128<<10 {
			return
		}
		set := &decodedSet{interval: interval, keyLength: int(keyLength)}
		set.addElements(list)
		chain := rules.Chain{
			Name: "output", Base: &rules.Base{Type: rules.Filter, Hook: rules.Output},
		}
		decodingBound.Check(t, "decoding", func() {
			budget := maxExpansion
			for range copies % 4000 {
				chain.Rules = append(chain.Rules,
					decodeRules(&budget, rules.IPv4, decodedSets{"set": set}, rawRule{attrs: rule})...)
			}
		})
		checkBudget(t, rules.Ruleset{Tables: []rules.Table{{
			Family: rules.IPv4, Name: "t", Chains: []rules.Chain{chain},
		}}})
	})
}

// checkBudget checks that queries about a ruleset stay within queryBound.
func checkBudget(t *testing.T, rs rules.Ruleset) {
	t.Helper()
	for _, text := range []string{
		"out tcp 10.244.1.5:40000 > 10.1.0.7:80 uid 7", "out udp [fd00::1]:53 > [fd00::2]:53",
	} {
		p, err := rules.ParsePacket(text)
		if err != nil {
			t.Fatal(err)
		}
		queryBound.Check(t, "explaining "+text, func() {
			diff.ExplainWithin(&rs, p, diff.AgentBudget)
		})
	}
	queryBound.Check(t, "deciding", func() {
		diff.Decide(diff.Side{Ruleset: rs}, diff.Side{Ruleset: changed(rs)},
			diff.Options{Budget: diff.AgentBudget})
	})
}

// changed returns the ruleset with an additional rule at the end of the first chain. The rule drops
// all packets.
func changed(rs rules.Ruleset) rules.Ruleset {
	first := rs.Tables[0].Chains[0]
	first.Rules = append(first.Rules[:len(first.Rules):len(first.Rules)],
		rules.Rule{Actions: []rules.Action{rules.Drop}})
	table := rs.Tables[0]
	table.Chains = append([]rules.Chain{first}, table.Chains[1:]...)
	return rules.Ruleset{Tables: append([]rules.Table{table}, rs.Tables[1:]...)}
}

// FuzzReceiveWithinBudget checks that the time and memory are bounded for decoding any answer to
// the requests of a dump, and for answering queries about the decoded rules.
func FuzzReceiveWithinBudget(f *testing.F) {
	for _, seed := range recordAnswers(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 32<<10 {
			return
		}
		c := scripted(t, nil, func(request []byte, _ func([]byte) [][]byte) [][]byte {
			return [][]byte{withSequenceOf(request, data)}
		})
		c.setTimeout(t, time.Millisecond)
		var rs rules.Ruleset
		decodingBound.Check(t, "decoding", func() {
			tables, _, _ := c.listTables(nil)
			for i, table := range tables {
				table.Name = fmt.Sprint(i, table.Name) // the same answer may list equal names
				rs.Tables = append(rs.Tables, table.Table)
			}
		})
		if len(rs.Tables) > 0 && len(rs.Tables[0].Chains) > 0 {
			checkBudget(t, rs)
		}
	})
}
