package route_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// sluiceRule returns Sluice's policy rule for IPv4 with an action and further attributes.
func sluiceRule(action uint8, attributes ...*nl.RtAttr) netnstest.PolicyRule {
	return netnstest.PolicyRule{
		Family: unix.AF_INET, Priority: 133, Table: 133, Action: action,
		Attributes: append(attributes, nl.NewRtAttr(nl.FRA_FWMARK, nl.Uint32Attr(1337))),
	}
}

// Attributes of policy rules that package nl does not define (linux/fib_rules.h).
const (
	attrDSCP          = 25
	attrFlowLabel     = 26
	attrFlowLabelMask = 27
	attrDportMask     = 29
	attrDSCPMask      = 30
)

// dscp5 is the selector "dscp 5".
var dscp5 = nl.NewRtAttr(attrDSCP, []byte{5})

// TestRuleWithOtherFieldsIsForeign adds policy rules that differ from Sluice's only in their action
// or in a selector that package netlink does not decode.
func TestRuleWithOtherFieldsIsForeign(t *testing.T) {
	for _, row := range []struct {
		name, text string
		rule       netnstest.PolicyRule
	}{
		{"the action nop", "fwmark 0x539 lookup 133 nop", sluiceRule(unix.FR_ACT_NOP)},
		{"the action blackhole", "fwmark 0x539 lookup 133 blackhole", sluiceRule(unix.FR_ACT_BLACKHOLE)},
		{"the action unreachable", "fwmark 0x539 lookup 133 unreachable", sluiceRule(unix.FR_ACT_UNREACHABLE)},
		{"the action prohibit", "fwmark 0x539 lookup 133 prohibit", sluiceRule(unix.FR_ACT_PROHIBIT)},
		{
			"the action goto", "fwmark 0x539 lookup 133 goto 200",
			sluiceRule(unix.FR_ACT_GOTO, nl.NewRtAttr(nl.FRA_GOTO, nl.Uint32Attr(200))),
		},
		{"a DSCP", "dscp 5 fwmark 0x539 lookup 133", sluiceRule(unix.FR_ACT_TO_TBL, dscp5)},
		{
			"a DSCP with a mask", "dscp 0x4/0x4 fwmark 0x539 lookup 133",
			sluiceRule(unix.FR_ACT_TO_TBL, nl.NewRtAttr(attrDSCP, []byte{4}), nl.NewRtAttr(attrDSCPMask, []byte{4})),
		},
		{
			"a mask of a port", "dport 0x5/0xff fwmark 0x539 lookup 133",
			sluiceRule(unix.FR_ACT_TO_TBL, nl.NewRtAttr(nl.FRA_DPORT_RANGE, []byte{5, 0, 5, 0}), nl.NewRtAttr(attrDportMask, []byte{0xff, 0})),
		},
		{
			"a mask that compares no bit of the mark", "fwmark 0x539/0x0 lookup 133",
			sluiceRule(unix.FR_ACT_TO_TBL, nl.NewRtAttr(nl.FRA_FWMASK, nl.Uint32Attr(0))),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, istioRoute4)
			row.rule.Add(t, n)
			if row.rule.Action == unix.FR_ACT_GOTO {
				row.text += " [unresolved]"
			}
			text := "ip -4 rule priority 133 " + row.text
			checkRead(t, n, rules.Routing{Others: []string{text}})
			if others, err := route.Unmodeled(n); err != nil || !cmp.Equal(others, []string{text}) {
				t.Errorf("not modeled: %q, error %v, want %q", others, err, text)
			}
			if err := n.Do(func() error {
				if route.InSync(onlyIPv4) {
					t.Error("InSync returns true, want false")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			// The kernel returns EEXIST for Sluice's rule beside some of these rules.
			change, err := route.Ensure(n, onlyIPv4)
			if err != nil || change.Len() != 1 {
				t.Errorf("Ensure added %d objects, error %v, want 1", change.Len(), err)
			}
			checkRead(t, n, rules.Routing{Policies: onlyIPv4.Policies, Others: []string{text}})
		})
	}
}

// TestTextsOfPolicyRules compares texts with the arguments of the ip command that adds the rule.
func TestTextsOfPolicyRules(t *testing.T) {
	for _, text := range []string{
		"-4 rule priority 9 dport 5 lookup 254",
		"-4 rule priority 9 ipproto tcp sport 5-6 lookup 254",
		"-4 rule priority 9 uidrange 1000-1000 lookup 254",
		"-4 rule priority 9 not from 10.0.0.0/8 to 10.1.1.1/32 iif lo oif lo tos 0x10 lookup 254",
		"-4 rule priority 9 tun_id 7 lookup 254",
		"-4 rule priority 9 lookup 254 suppress_prefixlength 0",
		"-4 rule priority 9 lookup 254 suppress_ifgroup 3",
		"-4 rule priority 9 lookup 254 realms 4/5",
		"-4 rule priority 9 fwmark 0x0/0xff lookup 254",
		"-4 rule priority 9 goto 32766",
		"-4 rule priority 9 unreachable",
		"-6 rule priority 9 from fd00::/8 lookup [l3mdev-table]",
	} {
		n := netnstest.New(t)
		command := strings.NewReplacer("rule priority", "rule add priority", "lookup [l3mdev-table]", "l3mdev").Replace(text)
		ip(t, n, command)
		want := []string{"ip " + text}
		if got, err := route.Unmodeled(n); err != nil || !cmp.Equal(got, want) {
			t.Errorf("policy rules %q, error %v, want %q", got, err, want)
		}
	}
}

func TestRulesThatDropAllPackets(t *testing.T) {
	for text, want := range map[string]bool{
		"blackhole": true, "unreachable": true, "prohibit": true, "from 10.0.0.0/8 blackhole": false,
		"fwmark 1 blackhole": false, "fwmark 0/1 blackhole": false, "not blackhole": false,
		"uidrange 5-5 prohibit": false, "lookup 254": false, "goto 32766": false, "nop": false,
	} {
		n := netnstest.New(t)
		ip(t, n, "rule add priority 9 "+text)
		list, err := route.Rules(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.DropsAll != (want && r.Priority == 9) {
				t.Errorf("%q: %+v, want DropsAll %t only for the rule with priority 9", text, r, want)
			}
		}
	}
}

// TestFlowLabelOfAPolicyRuleIsInItsText covers a selector that older ip commands cannot set.
func TestFlowLabelOfAPolicyRuleIsInItsText(t *testing.T) {
	n := netnstest.New(t)
	netnstest.PolicyRule{Family: unix.AF_INET6, Priority: 9, Table: 254, Attributes: []*nl.RtAttr{
		nl.NewRtAttr(attrFlowLabel, []byte{0, 0, 0, 5}), nl.NewRtAttr(attrFlowLabelMask, []byte{0, 0, 0, 0xff}),
	}}.Add(t, n)
	want := []string{"ip -6 rule priority 9 flowlabel 0x5/0xff lookup 254"}
	if got, err := route.Unmodeled(n); err != nil || !cmp.Equal(got, want) {
		t.Errorf("policy rules %q, error %v, want %q", got, err, want)
	}
}

// TestPrecedingLocal replaces the rule of the table local at priority 0.
func TestPrecedingLocal(t *testing.T) {
	for _, row := range []struct {
		name string
		rule netnstest.PolicyRule
		want string // a description
	}{
		{"a rule that has no effect", netnstest.PolicyRule{Action: unix.FR_ACT_NOP}, "priority 1 from 10.1.0.2/32 to 127.0.0.1/32 lookup 99"},
		{"a rule that drops all packets", netnstest.PolicyRule{Action: unix.FR_ACT_BLACKHOLE}, "priority 1 from 10.1.0.2/32 to 127.0.0.1/32 lookup 99"},
		{
			"a rule for some packets",
			netnstest.PolicyRule{Attributes: []*nl.RtAttr{dscp5}},
			"priority 0 dscp 5 lookup 255",
		},
		{
			"a rule that compares the mark 0",
			netnstest.PolicyRule{Attributes: []*nl.RtAttr{nl.NewRtAttr(nl.FRA_FWMASK, nl.Uint32Attr(1))}},
			"priority 0 fwmark 0x0/0x1 lookup 255",
		},
		{"the rule of a new namespace", netnstest.PolicyRule{}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, "-4 rule add pref 2 lookup local", "-4 rule del pref 0")
			row.rule.Family, row.rule.Table = unix.AF_INET, unix.RT_TABLE_LOCAL
			row.rule.Add(t, n)
			ip(t, n, "-4 rule add pref 1 from 10.1.0.2 to 127.0.0.1 lookup 99")
			var want []route.Description
			if row.want != "" {
				want = []route.Description{{Family: rules.IPv4, Text: "ip -4 rule " + row.want}}
			}
			if got, err := route.PrecedingLocal(n); err != nil || !cmp.Equal(got, want) {
				t.Errorf("preceding rules %v, error %v, want %v", got, err, want)
			}
		})
	}
}

// TestRulesThatRouteNothingMayPrecedeTheTableLocal adds rules before the rule of the table local that
// drop packets or have no effect.
func TestRulesThatRouteNothingMayPrecedeTheTableLocal(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "-4 rule add pref 2 lookup local", "-4 rule del pref 0", "-4 rule add pref 1 to 10.0.0.0/8 unreachable")
	netnstest.PolicyRule{Family: unix.AF_INET, Table: 99, Action: unix.FR_ACT_NOP}.Add(t, n)
	if got, err := route.PrecedingLocal(n); err != nil || len(got) > 0 {
		t.Errorf("preceding rules %v, error %v, want none", got, err)
	}
}
