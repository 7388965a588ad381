package compat_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// kernelNames returns the names of the kernel's matches or targets of a family. list is "matches"
// or "targets".
func kernelNames(t *testing.T, ns *netns.NS, f rules.Family, list string) []string {
	t.Helper()
	// A table makes a modular kernel create the file, and its rules load more extensions.
	istiotest.Restore(t, ns, istiotest.Legacy, f,
		"*mangle\n-A OUTPUT -m comment --comment x -j MARK --set-mark 1\nCOMMIT\n")
	path := map[rules.Family]string{rules.IPv4: "ip_tables_", rules.IPv6: "ip6_tables_"}[f] + list
	path = "/proc/thread-self/net/" + path
	var text []byte
	err := ns.Do(func() (err error) {
		text, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(text))
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		t.Fatalf("%s is empty", path)
	}
	return names
}

// eachExtension calls check with every revision of every match or target of the kernel, each with
// 100 random structures. list is "matches" or "targets".
func eachExtension(
	t *testing.T, list string, kind xtables.Kind, check func(f rules.Family, x xt.Extension),
) {
	random := rand.New(rand.NewPCG(1, 2))
	ns := netnstest.New(t)
	for _, f := range istiotest.Families {
		for _, name := range kernelNames(t, ns, f, list) {
			found := 0
			for revision := range uint32(8) {
				feature := xtables.Feature{Family: f, Kind: kind, Name: name, Revision: revision}
				if xtables.Probe(ns, feature) != nil {
					continue
				}
				found++
				for range 100 {
					data := make([]byte, 512)
					for i := range data[:random.IntN(80)] {
						data[i] = byte(random.UintN(256) >> random.IntN(9))
					}
					check(f, xt.Extension{Name: name, Revision: revision, Data: data})
				}
			}
			if found == 0 && name != "ERROR" && name != "" {
				t.Errorf("%s has no revision below 8", name)
			}
		}
	}
}

// TestEffectsOfAllMatches verifies that a match of this kernel is a condition only if
// xt.MatchEffect classifies it as a condition. Unknown matches have the effect that xt.MatchEffect
// returns, AnyEffect, or a more specific effect that depends on the data.
func TestEffectsOfAllMatches(t *testing.T) {
	eachExtension(t, "matches", xtables.KindMatch, func(f rules.Family, x xt.Extension) {
		effect := xt.MatchEffect(x.Name)
		for _, p := range []rules.Protocol{rules.TCP, rules.UDP, rules.ICMP, rules.ICMPv6} {
			r := rules.Rule{
				Matches: []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{p}}},
			}
			for _, m := range xt.DecodeMatch(&r, f, x) {
				u, unknown := m.(rules.Unknown)
				switch {
				case effect == rules.ReadsAndWrites && unknown && u.Effect == effect:
				case !effect.IsCondition() && (!unknown || u.Effect != rules.AnyEffect):
					t.Errorf("%s revision %d decodes to %#v, want AnyEffect, because MatchEffect returns %d",
						x.Name, x.Revision, m, effect)
				case unknown && effect.IsCondition() && u.State != "" &&
					(u.Effect == rules.ReadsAndWrites || u.Effect == rules.Writes):
				case x.Name == "statistic" && unknown && u.Effect == rules.Reads:
					// The data is a probability of 0 or 1.
				case unknown && u.Effect != effect && u.Effect != rules.AnyEffect:
					t.Errorf("%s revision %d has effect %d, want %d", x.Name, x.Revision, u.Effect,
						effect)
				case unknown && u.Effect == rules.AnyEffect && effect.IsCondition() &&
					x.Name != "socket":
					t.Errorf("%s revision %d is unknown to xt.DecodeMatch: add it from the kernel's source",
						x.Name, x.Revision)
				}
			}
		}
	})
}

// modeledTargets are targets that the model can express for some options.
var modeledTargets = []string{
	"CONNMARK", "CT", "DNAT", "MARK", "NOTRACK", "REDIRECT", "REJECT", "SNAT", "TPROXY",
}

// observers are targets that do not change the packet and do not end the chain.
var observers = []string{"AUDIT", "IDLETIMER", "LED", "LOG", "NFLOG", "TRACE", "ULOG"}

// TestEffectsOfAllTargets verifies that only the targets in observers decode to an action without
// an effect, and only the targets in modeledTargets to a known action. All other targets decode to
// an unknown action that writes.
func TestEffectsOfAllTargets(t *testing.T) {
	eachExtension(t, "targets", xtables.KindTarget, func(f rules.Family, x xt.Extension) {
		a := xt.DecodeTarget(f, x)
		u, unknown := a.(rules.Unknown)
		_, hasNone := a.(rules.NoEffect)
		switch {
		case hasNone:
			if !slices.Contains(observers, x.Name) {
				t.Errorf("%s revision %d decodes to an action without an effect, but is not an observer", x.Name, x.Revision)
			}
		case unknown && u.Effect == rules.TranslatesSource:
			if x.Name != "SNAT" && x.Name != "MASQUERADE" {
				t.Errorf("%s revision %d decodes to source NAT, want another action", x.Name, x.Revision)
			}
		case unknown && (u.Effect == rules.AnyEffect || u.Effect == rules.Writes ||
			u.Effect == rules.WritesHeader || x.Name == "CONNMARK"):
		case !unknown && slices.Contains(modeledTargets, x.Name):
		default:
			t.Errorf("%s revision %d decodes to %#v, want an unknown action that writes", x.Name,
				x.Revision, a)
		}
	})
}
