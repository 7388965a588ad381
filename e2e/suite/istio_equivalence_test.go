package suite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// programDir is the directory on the node for the programs of copyPrograms.
const programDir = "/opt/sluice-e2e/"

// copyPrograms copies istio-iptables and Sluice's commands to the node.
func (tc *testCluster) copyPrograms(t *testing.T) {
	t.Helper()
	dir := tc.node().Path(programDir)
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

// istioLog runs istio-iptables for a new pod, with the injector's default arguments and extra, and
// returns its log.
func (tc *testCluster) istioLog(t *testing.T, ns string, extra ...string) string {
	t.Helper()
	istioPod := tc.run(t, mesh.Pod(ns, "istio"))[0]
	argv := []string{
		"env", "ISTIO_DUAL_STACK=true", programDir + "istio-iptables",
		"-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-i", "*", "-b", "*", "-d",
		"15020,15021,15090",
	}
	log, err := tc.inNetns(t.Context(), tc.mustSandbox(t, istioPod), append(argv, extra...)...)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// mustBeEquivalent fails the test unless the kernel's rules of a pod are equivalent to the rules in
// a log of istio-iptables. extra contains arguments of rules diff.
func (tc *testCluster) mustBeEquivalent(t *testing.T, sluicePod *corev1.Pod, log string, extra ...string) {
	t.Helper()
	diff := tc.node().Command(t.Context(), append([]string{
		programDir + "rules", "diff", "--left", "netns:" + tc.mustSandbox(t, sluicePod).netns, "--right",
		"log:-",
	}, extra...)...)
	diff.Stdin = strings.NewReader(log)
	if out, err := diff.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "equivalent") {
		t.Errorf("rules diff, want equivalent rules: error %v: %s", err, out)
	}
}
