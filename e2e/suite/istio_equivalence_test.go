package suite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// peerDir is the node's directory with the programs for the comparison.
const peerDir = "/opt/sluice-e2e/"

// copyPeerPrograms copies the programs to the node.
func (w *testCluster) copyPeerPrograms(t *testing.T) {
	t.Helper()
	dir := w.node().Path(peerDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"istio-iptables", "rules", "kubectl-sluice"} {
		content, err := os.ReadFile(filepath.Join(bin, program))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, program), content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// istioLog runs istio-iptables for a new pod, and returns its log. more contains arguments in
// addition to the injector's default ones.
func (w *testCluster) istioLog(t *testing.T, ns string, more ...string) string {
	t.Helper()
	theirs := w.run(t, mesh.Pod(ns, "theirs"))[0]
	argv := []string{
		"env", "ISTIO_DUAL_STACK=true", peerDir + "istio-iptables",
		"-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-i", "*", "-b", "*", "-d",
		"15020,15021,15090",
	}
	log, err := w.inNetns(t.Context(), w.mustSandbox(t, theirs), append(argv, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// mustBeEquivalent fails the test unless the kernel's rules of a pod are equivalent to the rules in
// the log.
func (w *testCluster) mustBeEquivalent(t *testing.T, ours *corev1.Pod, log string, more ...string) {
	t.Helper()
	diff := w.node().Command(t.Context(), append([]string{
		peerDir + "rules", "diff", "--left", "netns:" + w.mustSandbox(t, ours).netns, "--right",
		"log:-",
	}, more...)...)
	diff.Stdin = strings.NewReader(log)
	if out, err := diff.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "equivalent") {
		t.Errorf("%v: %s", err, out)
	}
}
