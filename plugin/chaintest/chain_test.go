package chaintest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestPodIsAddedCheckedAndDeletedInARealChain adds, checks and deletes a mesh pod in a real chain,
// with every version of the specification, both backends and different first plugins.
func TestPodIsAddedCheckedAndDeletedInARealChain(t *testing.T) {
	t.Parallel()
	for _, c := range rulestest.Sample([]struct {
		name string
		chain
		pod string
	}{
		{"0.3.0", chain{version: "0.3.0"}, "sidecar"},
		{"0.3.1", chain{version: "0.3.1"}, "sidecar"},
		{"0.4.0", chain{version: "0.4.0"}, "sidecar"},
		{"1.0.0", chain{version: "1.0.0"}, "sidecar"},
		{"1.1.0", chain{version: latest}, "sidecar"},
		{"after the plugin ptp", chain{version: latest, first: "ptp"}, "sidecar"},
		{
			"legacy tables",
			chain{version: latest, fields: map[string]any{"backend": "legacy"}},
			"sidecar",
		},
		{"tproxy", chain{version: latest}, "tproxy"},
		{"both families", chain{version: latest, dualStack: true}, "dual-stack"},
		{"annotations from the runtime", chain{version: latest, passesAnnotations: true}, "native-sidecar"},
	}, os.Getenv) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newNode(t).newPod(t, c.pod)
			result := p.mustAdd(t, c.chain)
			p.start(t)
			p.checkTraffic(t, true)

			p.checkDrift(t, c.chain, "")
			p.tamper(t, c.chain)
			p.checkDrift(t, c.chain, "OUTPUT")
			second, err := p.execute(t, "ADD", c.chain, result)
			if err != nil {
				t.Fatalf("ADD again: %v", err)
			}
			if diff := cmp.Diff(result, second); diff != "" {
				t.Errorf("second ADD, result (-before +after):\n%s", diff)
			}
			p.checkDrift(t, c.chain, "")
			p.checkTraffic(t, true)

			if err := p.del(t, c.chain); err != nil {
				t.Errorf("DEL: %v", err)
			}
			if err := p.del(t, c.chain); err != nil {
				t.Errorf("DEL again: %v", err)
			}
			p.removePath(t)
			if err := p.del(t, c.chain); err != nil {
				t.Errorf("DEL without the namespace: %v", err)
			}
			p.node.checkRecords(t)
		})
	}
}

// TestADeletedAttachmentIsNoLongerCaptured deletes an attachment and keeps its network namespace.
// Like cnitool, the test does not pass the id of a Kubernetes sandbox.
func TestADeletedAttachmentIsNoLongerCaptured(t *testing.T) {
	t.Parallel()
	p := newNode(t).newPod(t, "tproxy")
	c := chain{version: latest}
	result := p.mustAdd(t, c)
	p.start(t)
	x := p.execution(t, "DEL", c, result)
	x.environment["CNI_ARGS"] = "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace +
		";K8S_POD_NAME=" + p.name
	if err := x.run(p.node); err != nil {
		t.Fatal(err)
	}
	if remaining := p.rules(t); remaining != "" {
		t.Errorf("rules after DEL, which logged %q:\n%s", &x.stderr, remaining)
	}
	p.checkTraffic(t, false)
}

// TestInvalidAnnotationsAreReported checks the error that users see for a pod with invalid
// annotations.
func TestInvalidAnnotationsAreReported(t *testing.T) {
	t.Parallel()
	p := newNode(t).newPod(t, "wrong")
	_, err := p.add(t, chain{version: latest})
	openGolden(t, "wrong.txt").check(t, "invalid annotations", p.node.formatError(err))
	if remaining := p.rules(t); err == nil || remaining != "" {
		t.Errorf("ADD: error %v, rules %q; want an error and no rules", err, remaining)
	}
	p.node.checkRecords(t)
}

// checkDrift runs CHECK. If drift is empty, CHECK must succeed. Otherwise the upper-case text of
// its error must contain drift. If the version of the specification has no CHECK, libcni must
// refuse it.
func (p *pod) checkDrift(t testing.TB, c chain, drift string) {
	t.Helper()
	err := p.check(t, c)
	switch {
	case strings.HasPrefix(c.version, "0.3."):
		if !errors.Is(err, libcni.ErrorCheckNotSupp) {
			t.Errorf("CHECK in version %s: %v; want %v", c.version, err, libcni.ErrorCheckNotSupp)
		}
	case drift == "":
		if err != nil {
			t.Errorf("CHECK: %v", err)
		}
	case err == nil || !strings.Contains(strings.ToUpper(err.Error()), drift):
		t.Errorf("CHECK after tampering: %v; want an error about %q", err, drift)
	default:
		t.Logf("CHECK after tampering: %v", err)
	}
}

// tamper changes the rules: the application's connections then bypass the proxy. A process in the
// pod with CAP_NET_ADMIN can do the same.
func (p *pod) tamper(t testing.TB, c chain) {
	t.Helper()
	if c.fields["backend"] == "legacy" {
		p.run(t, "iptables-legacy", "-t", "nat", "-F", "OUTPUT")
		return
	}
	p.run(t, "nft", "insert", "rule", "inet", "sluice", "nat-output", "accept")
}

// run runs a program of the node in the pod's namespace, and returns its output.
func (p *pod) run(t testing.TB, command ...string) string {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, command[0]), command[1:]...)
	var out []byte
	err := p.ns.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// removePath removes the path of the pod's network namespace. The namespace remains, because the
// pod's servers run until the end of the test.
func (p *pod) removePath(t testing.TB) {
	t.Helper()
	if err := os.Remove(p.path); err != nil {
		t.Fatal(err)
	}
}
