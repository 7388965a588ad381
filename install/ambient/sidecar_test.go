package ambient_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

const status = "sidecar.istio.io/status"

// TestAnnotationDoesNotRemoveTheRulesOfASidecar covers a pod with a sidecar to which a user has
// added the annotation of ambient mode, for example by copying another pod. Its rules stay.
func TestAnnotationDoesNotRemoveTheRulesOfASidecar(t *testing.T) {
	sluice := rules.MustCompile(rules.DefaultRedirect())
	redirectByIstio := func(t *testing.T, ns *netns.NS) {
		for _, line := range []string{
			`nft add table inet istio-proxy-nat`,
			`nft add chain inet istio-proxy-nat output { type nat hook output priority -100; }`,
			`nft add rule inet istio-proxy-nat output tcp dport 0-65535 redirect to :15001`,
		} {
			runIn(t, ns, strings.Fields(line)...)
		}
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		redirect    func(*testing.T, *netns.NS)
	}{
		"rules of Sluice": {
			map[string]string{status: "{}"},
			func(t *testing.T, ns *netns.NS) { apply(t, compat.BackendNFT, ns, sluice) },
		},
		"rules of Sluice in iptables-legacy": {
			map[string]string{status: "{}"},
			func(t *testing.T, ns *netns.NS) { apply(t, compat.BackendLegacy, ns, sluice) },
		},
		"rules of Sluice, and the annotation of the injector was removed": {
			nil, func(t *testing.T, ns *netns.NS) { apply(t, compat.BackendNFT, ns, sluice) },
		},
		"rules of Istio": {map[string]string{status: "{}"}, redirectByIstio},
	} {
		t.Run(name, func(t *testing.T) {
			env := newTestEnv(t)
			ns := netnstest.New(t)
			c.redirect(t, ns)
			before, installed := istioObjects(t, ns), !hasNoRules(t, ns)
			env.put("web", running("10.0.0.7"), removeLabels, annotated(redirection, "enabled"))
			for key, value := range c.annotations {
				env.put("web", annotated(key, value))
			}
			env.addSandbox("web", ns)
			env.start()
			rulestest.Eventually(t, "the annotation is removed", func() bool { return env.annotation("web") == "" })
			env.endRun()
			if err := env.Uninstall(t.Context()); err != nil {
				t.Error(err)
			}
			if got := !hasNoRules(t, ns); got != installed {
				t.Errorf("the pod has rules of Sluice: %t, want %t", got, installed)
			}
			if got := istioObjects(t, ns); !slices.Equal(got, before) {
				t.Errorf("objects of Istio %q, want %q", got, before)
			}
		})
	}
}
