package kerneltest_test

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/rules"
)

// chains returns an nft table. Each list contains the declaration and the rules of a chain.
func chains(family rules.Family, list ...[]string) kerneltest.Table {
	t := kerneltest.Table{Program: kerneltest.NFT, Family: family, Name: "a"}
	for i, c := range list {
		chain := kerneltest.Chain{Name: string(rune('a' + i)), Base: c[0]}
		for _, r := range c[1:] {
			chain.Rules = append(chain.Rules, kerneltest.Rule{r})
		}
		t.Chains = append(t.Chains, chain)
	}
	return t
}

func base(chainType, hook, priority string) string {
	return "type " + chainType + " hook " + hook + " priority " + priority + ";"
}

// xtables returns an iptables table. Each rule begins with its chain.
func xtables(p kerneltest.Program, name string, list ...string) kerneltest.Table {
	t := kerneltest.Table{Program: p, Family: rules.IPv4, Name: name}
	builtin := map[string]string{
		"raw": "PREROUTING OUTPUT", "mangle": "PREROUTING INPUT FORWARD OUTPUT POSTROUTING",
		"nat": "PREROUTING INPUT OUTPUT POSTROUTING", "filter": "INPUT FORWARD OUTPUT",
	}
	for _, chain := range strings.Fields(builtin[name]) {
		c := kerneltest.Chain{Name: chain, Base: "ACCEPT"}
		for _, r := range list {
			if rule, ok := strings.CutPrefix(r, chain+" "); ok {
				c.Rules = append(c.Rules, kerneltest.Rule{rule})
			}
		}
		t.Chains = append(t.Chains, c)
	}
	return t
}

// in returns the first packet of a connection. The packet arrives by the interface.
func in(device string, protocol rules.Protocol, from, to string) rules.Packet {
	p := rules.Packet{
		Hook: rules.Prerouting, InInterface: device, Protocol: protocol,
		Source: netip.MustParseAddrPort(from), Destination: netip.MustParseAddrPort(to),
	}
	switch protocol {
	case rules.TCP:
		p.Flags = rules.SYN
	case rules.ICMP:
		p.ICMPType = 8
	case rules.ICMPv6:
		p.ICMPType = 128
	}
	return p
}

// out returns the first packet of a connection. A socket of the user, and of the group with the
// same ID, sends the packet.
func out(uid uint32, protocol rules.Protocol, from, to string) rules.Packet {
	p := in("", protocol, from, to)
	p.Hook, p.Owner = rules.Output, &rules.Owner{UID: uid, GID: uid}
	return p
}

// with returns the packet with a change.
func with(p rules.Packet, change func(p *rules.Packet)) rules.Packet {
	change(&p)
	return p
}

func established(p *rules.Packet) {
	p.State, p.Status = rules.Established, kerneltest.EstablishedStatus
	if p.Protocol == rules.TCP {
		p.Flags = rules.ACK
	}
}

func related(p *rules.Packet) {
	p.State, p.Status = rules.Related, kerneltest.RelatedStatus
	p.ICMPType, p.ICMPCode = 3, 1
	if p.Protocol == rules.ICMPv6 {
		p.ICMPType = 1
	}
}

// A factTest tests a fact of package diff: it states how the kernel treats a packet.
type factTest struct {
	fact      string // the name of the fact in FACTS.md
	name      string
	ruleset   kerneltest.Ruleset
	listeners bool           // whether the TProxyListeners are open
	before    []rules.Packet // sent before the packet
	packet    rules.Packet
	// adjustModel, if not nil, sets the fields of the packet that depend on the packets sent
	// before, such as the status. It changes the packet that the model gets, not the packet that is
	// sent.
	adjustModel func(p *rules.Packet)
	want        string // the result of Effect.String
}

var (
	syn = in("eth0", rules.TCP, "10.9.9.9:1000", "10.244.1.5:81")
	udp = in("eth0", rules.UDP, "10.9.9.9:1000", "10.244.1.5:81")
)

// Declarations of common base chains of nft, and a common outgoing packet.
var (
	rawNFT    = base("filter", "prerouting", "-300")
	mangleNFT = base("filter", "prerouting", "-150")
	outgoing  = out(0, rules.TCP, "10.244.1.5:1000", "10.9.9.9:80")
)

const legacy, iptablesNFT = kerneltest.Legacy, kerneltest.IPTablesNFT

func rulesetOf(tables ...kerneltest.Table) kerneltest.Ruleset { return tables }

// A factList is a list of tests of facts.
type factList []factTest

// add appends the test of a fact, with a packet that is sent while the listeners are open.
func (list *factList) add(
	fact, name string, ruleset kerneltest.Ruleset, p rules.Packet, want string,
) {
	*list = append(*list, factTest{
		fact: fact, name: name, ruleset: ruleset, listeners: true, packet: p, want: want,
	})
}

func facts() factList {
	return slices.Concat(
		statementFacts(),
		beforeConntrackFacts(),
		atConntrackFacts(),
		redirectionFacts(),
		natFacts(),
		natOrderFacts(),
		familyFacts(),
		socketFacts(),
		routeFacts(),
	)
}

// TestKernelFacts verifies the kernel's treatment of single packets, and that the model predicts it
// or reports it as undecided.
func TestKernelFacts(t *testing.T) {
	n := network(t)
	for _, f := range facts() {
		t.Run(f.name, func(t *testing.T) {
			if err := n.Load(f.ruleset); err != nil {
				t.Fatalf("load the ruleset: %v\n%s", err, f.ruleset)
			}
			live, err := n.Read()
			if err != nil {
				t.Fatal(err)
			}
			n.CloseListeners()
			var listeners []kerneltest.Listener
			if f.listeners {
				listeners = kerneltest.TProxyListeners
				if err := n.Listen(listeners); err != nil {
					t.Fatal(err)
				}
			}
			p := f.packet
			p.NoListener = !f.listeners
			n.Complete(&p)
			packets := append(slices.Clone(f.before), p)
			for i := range packets {
				n.Complete(&packets[i])
			}
			observations, err := n.Observe(packets)
			if err != nil {
				t.Fatal(err)
			}
			o := observations[len(packets)-1]
			effect, err := o.Effect(&p)
			if err := errors.Join(o.Err, err); err != nil {
				t.Fatalf("the packet cannot be sent or observed: %v", err)
			}
			if effect.String() != f.want {
				t.Errorf("%s\nthe kernel: %s\nwant:       %s", f.ruleset, effect, f.want)
				for _, s := range o.Entries {
					t.Logf("    %s", s)
				}
			}
			if f.adjustModel != nil {
				f.adjustModel(&p)
			}
			outcome, alternatives := kerneltest.Explain(&live.Ruleset, p)
			predicted := outcome.Undecided != "" ||
				kerneltest.Predicts(&p, outcome, effect, listeners)
			for _, a := range alternatives {
				predicted = predicted || kerneltest.Predicts(&p, a, effect, listeners)
			}
			if !predicted {
				t.Errorf("the model does not predict the effect\nthe kernel: %s\nthe model:  %s %+v\n%s",
					effect, outcome, outcome, f.ruleset)
			}
		})
	}
}

// TestEachFactHasAKernelTest verifies that the facts of FACTS.md and the facts that have a test
// against the kernel are the same.
func TestEachFactHasAKernelTest(t *testing.T) {
	tested := map[string]bool{
		"ConntrackPriorityTies":         true, // TestOrderAtConntracksPriorityFollowsRegistration
		"InvalidIsTrackedAgain":         true, // TestInvalidPacketIsTrackedAgain
		"ClosedSocketHasCgroup":         true, // TestClosedSocketHasCgroup
		"NATPriorityTies":               true, // TestOrderAtNATsPriorityFollowsRegistration
		"ExpectationFollowsMaster":      true, // TestHelpersAffectNAT
		"AuthenticationHeaderIsSkipped": true, // TestOnlyLegacySkipsAuthenticationHeaders
		"ConntrackSeesDropped":          true, // TestStatesAfterDroppedPackets
		"ConntrackReassembles":          true, // TestRulesMatchFragmentsUnlessTheKernelReassembles
		"UntrackedNotReassembled":       true, // TestRulesMatchFragmentsUnlessTheKernelReassembles
		"ResetHasConnection":            true, // TestResetOfARuleHasTheConnection
		"ErrorHasConnection":            true, // TestICMPErrorOfARuleHasTheConnection
		"NATDropsRedirects":             true, // TestNATDropsICMPRedirectsOfTranslatedConnections
		"ICMPStateFollowsType":          true, // TestStatesOfICMPMessagesFollowTheirTypes
		"ICMPOfOtherFamilyIsInvalid":    true, // TestICMPOfTheOtherFamilyIsInvalid
		"TCPStateFollowsFlags":          true, // TestStatesOfTCPSegmentsFollowTheirFlags
		"RelatedFollowsOrigin":          true, // TestStatesOfExpectedConnections
		"CopyHasConnection":             true, // TestMulticastCopyHasConnection
		"KernelSocketHasNoOwner":        true, // TestOwnerMatchesOfKernelSockets
		"NATNeedsConntrack":             true, // TestNATChainsNeedConntrack
		"TProxyPrefersEstablished":      true, // TestTProxyPrefersEstablishedSockets
		"TranslationNeedsNATChain":      true, // TestTranslationNeedsNATChain
		"NATSetsStatus":                 true, // TestRulesChangeOnlyDependentValues of package nft
		"TProxyNeedsLocalRoute":         true, // TestDelivers of package route
	}
	for _, f := range facts() {
		tested[f.fact] = true
	}
	for _, a := range arrivals {
		if a.fact != "" {
			tested[a.fact] = true
		}
	}
	page, err := os.ReadFile("../../rules/diff/FACTS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([A-Z]\w+) \| .*$`).FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		if !tested[row[1]] {
			t.Errorf("no kernel test for %s", row[0])
		}
		delete(tested, row[1])
	}
	for name := range tested {
		t.Errorf("a test names the fact %s, which FACTS.md does not list", name)
	}
}
