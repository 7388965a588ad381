package istio_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A testCase is a configuration with Sluice's rulesets for it.
type testCase struct {
	istio.Configuration
	redirect    rules.Redirect
	sluiceRules rules.Ruleset // with the default deviations
	strict      rules.Ruleset // without deviations
}

// newTestCase compiles the rulesets.
func newTestCase(t *testing.T, c istio.Configuration) testCase {
	t.Helper()
	s := testCase{Configuration: c}
	var err error
	if s.redirect, err = c.Redirect(); err != nil {
		t.Fatalf("%s\nrejected by Sluice's parsers: %v", c, err)
	}
	s.sluiceRules = rules.MustCompile(s.redirect)
	s.strict = rules.MustCompile(s.strictRedirect())
	return s
}

func (s testCase) strictRedirect() rules.Redirect {
	r := s.redirect
	r.StrictIstio()
	return r
}

// sluiceSide returns Sluice's rules with deviations as a side of a comparison. strictSide returns
// the rules without deviations.
func (s testCase) sluiceSide() diff.Side {
	return diff.Side{Ruleset: s.sluiceRules, RoutingKnown: true, Redirect: &s.redirect}
}

func (s testCase) strictSide() diff.Side {
	r := s.strictRedirect()
	return diff.Side{Ruleset: s.strict, RoutingKnown: true, Redirect: &r}
}

// Arguments that select a variant of istio-iptables. They come first, so that arguments of a
// configuration override them.
const (
	byLegacy = "--force-iptables-binary=legacy"
	byNative = "--native-nftables"
)

// start runs istio-iptables in a new pod, which is removed when the test ends.
func start(t *testing.T, c istio.Configuration, variant string) (*netns.NS, istio.Result) {
	t.Helper()
	ns := newPod(t, c.Pod)
	result, err := program(t, istioIptables).Run(ns, c, slices.Concat([]string{variant}, c.Args)...)
	if err != nil {
		t.Fatal(err)
	}
	return ns, result
}

// newPod creates the namespace of a pod, and removes it when the test ends.
func newPod(t *testing.T, p istio.Pod) *netns.NS {
	t.Helper()
	ns, err := p.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// readSaved reads the output of iptables-legacy-save and ip6tables-legacy-save, and the routing.
func readSaved(t *testing.T, ns *netns.NS) rules.Ruleset {
	t.Helper()
	rs := parseSaved(t, [2]string{
		"iptables-legacy-save", "ip6tables-legacy-save",
	}, func(program string) (string, error) {
		return istio.Save(ns, program)
	})
	rs.Routing = readRouting(t, ns)
	return rs
}

// parseSaved parses two outputs of iptables-save, the first for IPv4 and the second for IPv6.
func parseSaved(
	t *testing.T, names [2]string, text func(name string) (string, error),
) rules.Ruleset {
	t.Helper()
	var rs rules.Ruleset
	for i, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		content, err := text(names[i])
		if err != nil {
			t.Fatal(err)
		}
		tables, err := save.Parse(f, names[i], strings.NewReader(content))
		if err != nil {
			t.Fatalf("%v\n%s", err, content)
		}
		rs.Tables = append(rs.Tables, tables...)
	}
	return rs
}

// readLive reads all rules and routes of the namespace, like rules diff.
func readLive(t *testing.T, ns *netns.NS) rules.Ruleset {
	t.Helper()
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range live.Ambiguous {
		t.Errorf("live rules: %s", a)
	}
	return live.Ruleset
}

func readRouting(t *testing.T, ns *netns.NS) rules.Routing {
	t.Helper()
	routing, err := istio.ReadRouting(ns)
	if err != nil {
		t.Fatal(err)
	}
	return routing
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
