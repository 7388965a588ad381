package nft

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

func TestTransactionsEqualTheGoldenFiles(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			tx, err := Encode(compileWith(e.change))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "encode-"+e.name, tx.String()+"\n"+hexDump(t, tx.Bytes()))
		})
	}
}

func TestEncodeIsDeterministicAndDoesNotChangeTheRuleset(t *testing.T) {
	for _, e := range examples {
		rs := compileWith(e.change)
		first, _ := Encode(rs)
		second, _ := Encode(rs)
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: encoded differently the second time", e.name)
		}
		if !reflect.DeepEqual(rs, compileWith(e.change)) {
			t.Errorf("%s: Encode has changed the ruleset:\n%s", e.name, rs)
		}
	}
}

// TestABatchIsNumberedAndAcknowledgedOnce checks the format that error messages depend on: the
// sequence number of a message is the index of its description, and only the message before the end
// of the batch requests an acknowledgement.
func TestABatchIsNumberedAndAcknowledgedOnce(t *testing.T) {
	tx, err := Encode(manyPrefixes(0, 5000))
	if err != nil {
		t.Fatal(err)
	}
	msgs := split(t, tx.Bytes())
	if len(msgs) != len(tx.descriptions) {
		t.Fatalf("%d messages, want one for each of %d descriptions", len(msgs), len(tx.descriptions))
	}
	for i, m := range msgs {
		if int(m.Header.Seq) != i {
			t.Errorf("message %d has the sequence number %d, want its index", i, m.Header.Seq)
		}
		if ack := m.Header.Flags&unix.NLM_F_ACK != 0; ack != (i == len(msgs)-2) {
			t.Errorf("message %d of %d requests an acknowledgement: %t, want %t", i, len(msgs), ack,
				!ack)
		}
		if len(m.Data) > 1<<16 {
			t.Errorf("message %d (%s) has %d bytes, want at most 64 KiB", i, tx.descriptions[i],
				len(m.Data))
		}
	}
}

// TestUnsupportedRulesAreErrors checks that the error names the table, the chain, and the number
// and text of the rule.
func TestUnsupportedRulesAreErrors(t *testing.T) {
	long := strings.Repeat("x", 129)
	for _, row := range []struct {
		name string
		rule rules.Rule
		want string
	}{
		{"TPROXY of xtables", action(rules.TProxyDrop{Port: 15006}), "TPROXY redirect 0.0.0.0:15006"},
		{
			"an owner match that includes packets without a socket",
			match(rules.MatchOwner{Not: true, Socketless: true, IDs: rules.Singles[uint32](1)}),
			"without a socket",
		},
		{"an unknown match", match(rules.Unknown{Text: "log"}), "unknown(log)"},
		{"an unknown action", action(rules.Unknown{Text: "log"}), "unknown(log)"},
		{"an address match without addresses", match(rules.MatchAddr{}), "at least one value"},
		{
			"an address match of a named set without addresses", match(rules.MatchAddr{Set: "s"}),
			"at least one value",
		},
		{"a port match without ports", match(rules.MatchPort{}), "at least one value"},
		{"an owner match without ids", match(rules.MatchOwner{}), "at least one value"},
		{"an interface match without names", match(rules.MatchInterface{}), "at least one value"},
		{"a protocol match without protocols", match(rules.MatchProtocol{}), "at least one value"},
		{"a family match without a family", match(rules.MatchFamily{}), "at least one value"},
		{
			"a name pattern among several interfaces",
			match(rules.MatchInterface{Names: interfaceList("eth0,tap+")}), "eth0",
		},
		{
			"an interface name that is too long",
			match(rules.MatchInterface{Names: []rules.InterfaceName{{Name: long}}}), long,
		},
		{"a redirect without a port", action(rules.RedirectTo{}), "one port"},
		{"a redirect to several ports", action(rules.RedirectTo{Port: 80, Last: 90}), "one port"},
		{"a redirect without a first port", action(rules.RedirectTo{Last: 90}), "one port"},
		{"a translation of the port only", action(rules.DNATPort{Port: 80}), "the nf_tables encoder does not support"},
		{
			"a translation to several ports", action(rules.DNATPort{Port: 80, Last: 90}),
			"the nf_tables encoder does not support",
		},
		{
			"a translation to another address", action(rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.1")}),
			"the nf_tables encoder does not support",
		},
		{"tproxy without a port", action(rules.TProxy{}), "must have a port"},
		{
			"tproxy to an address",
			action(rules.TProxy{Port: 80, Addr: netip.MustParseAddr("::1")}), "no address",
		},
		{"a reject", action(rules.Reject{}), "the nf_tables encoder does not support"},
		{
			"a mark computed from both marks",
			action(rules.MixMark{Conntrack: true, Mark: 1, ConntrackMark: 2}),
			"the nf_tables encoder does not support",
		},
		{
			"a packet mark that does not depend on the connection mark",
			action(rules.MixMark{Mark: 1}), "the nf_tables encoder does not support",
		},
		{"notrack", action(rules.Notrack{}), "the nf_tables encoder does not support"},
		{
			"a match after an action",
			action(rules.Require{Match: rules.MatchFamily{Family: rules.IPv4}}),
			"the nf_tables encoder does not support",
		},
		{
			"a state match with the NAT status dnat",
			match(rules.MatchState{States: rules.States(rules.New, rules.DNAT)}), "are not states",
		},
		{"a state match without states", match(rules.MatchState{}), "at least one value"},
		{
			"a match of the connection's status", match(rules.MatchStatus{Status: rules.StatusDNAT}),
			"the nf_tables encoder does not support",
		},
		{"a match of the direction", match(rules.MatchDirection{}), "the nf_tables encoder does not support"},
		{
			"a match of several marks", match(rules.MatchMarkRange{Values: rules.Singles[uint32](1)}),
			"the nf_tables encoder does not support",
		},
		{
			"a match of the address type", match(rules.MatchAddrType{Types: rules.AddrTypes(rules.Local)}),
			"the nf_tables encoder does not support",
		},
		{"a match of the reverse path", match(rules.MatchReversePath{}), "the nf_tables encoder does not support"},
		{"a match of a socket", match(rules.MatchSocket{}), "the nf_tables encoder does not support"},
		{
			"a match of the ICMP type", match(rules.MatchICMP{Values: rules.Singles[uint16](8)}),
			"the nf_tables encoder does not support",
		},
		{"a match of several fields", match(rules.MatchTuple{}), "the nf_tables encoder does not support"},
		{
			"a comment that is too long",
			rules.Rule{Actions: []rules.Action{rules.Accept}, Comment: long},
			"comment",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			chain := rules.Chain{
				Name: "nat-output", Rules: []rules.Rule{action(rules.Accept), row.rule},
			}
			_, err := Encode(rules.Ruleset{Tables: []rules.Table{{
				Name: "sluice", Chains: []rules.Chain{chain},
			}}})
			if err == nil {
				t.Fatalf("encoded without an error, want one that contains %q", row.want)
			}
			for _, want := range []string{
				"inet sluice", "nat-output #2: " + row.rule.String(), row.want,
			} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not contain %q: %v", want, err)
				}
			}
		})
	}
}

func TestAllErrorsAreReportedTogether(t *testing.T) {
	bad := action(rules.TProxyDrop{})
	chains := []rules.Chain{
		{Name: "a", Rules: []rules.Rule{bad, bad}}, {Name: "b", Rules: []rules.Rule{bad}},
	}
	_, err := Encode(rules.Ruleset{Tables: []rules.Table{{Name: "t", Chains: chains}}})
	for _, want := range []string{"inet t a #1", "inet t a #2", "inet t b #1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that contains %q", err, want)
		}
	}
}

func action(a rules.Action) rules.Rule { return rules.Rule{Actions: []rules.Action{a}} }

func match(m rules.Match) rules.Rule { return rules.Rule{Matches: []rules.Match{m}} }

// hexDump formats a batch with a paragraph for each message.
func hexDump(t *testing.T, batch []byte) string {
	t.Helper()
	var b strings.Builder
	for i := range split(t, batch) {
		length := native.Uint32(batch)
		fmt.Fprintf(&b, "message %d, %d bytes\n", i, length)
		for j := uint32(0); j < length; j += 16 {
			fmt.Fprintf(&b, "% x\n", batch[j:min(j+16, length)])
		}
		b.WriteString("\n")
		batch = batch[nlmsg.Align(int(length)):]
	}
	return b.String()
}

// split splits a batch into its messages.
func split(t *testing.T, batch []byte) []syscall.NetlinkMessage {
	t.Helper()
	msgs, err := syscall.ParseNetlinkMessage(batch)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}
