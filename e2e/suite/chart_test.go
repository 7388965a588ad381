package suite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

const (
	chartDir = "../../install/chart"
	// release is the name of the Helm release, agentNamespace its namespace, and agent its
	// DaemonSet.
	release        = "sluice"
	agentNamespace = "istio-system"
	agent          = "sluice-node"
	// agentSelector selects the agents' pods.
	agentSelector = "k8s-app=" + agent
)

// installTimeout is the time limit of Helm's actions.
var installTimeout = timeFactor * time.Minute

// helm runs Helm, and returns its output.
func (tc *testCluster) helm(ctx context.Context, args ...string) (string, error) {
	program, err := filepath.Abs(filepath.Join(bin, "e2e", "helm"))
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, program,
		append(args, "--kubeconfig", tc.Kubeconfig(), "-n", agentNamespace)...)
	home := filepath.Join(os.TempDir(), "sluice-helm")
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// chartArgs returns the arguments of helm install and helm upgrade for Sluice's chart, with the
// image that is loaded on the nodes.
func (tc *testCluster) chartArgs(extra ...string) []string {
	hub, tag, _ := strings.Cut(tc.image, "/sluice:")
	return append([]string{
		release, chartDir, "--create-namespace", "--wait", "--timeout", installTimeout.String(),
		"--set", "hub=" + hub, "--set", "tag=" + tag, "--set", "pullPolicy=Never",
		"--set", "cniBinDir=" + pluginDir(),
		// The pods of the tests outlast an uninstallation, so that it would wait in vain for 20
		// seconds until no sandbox needs the plugin.
		"--set", "uninstallTimeout=2s",
	}, extra...)
}

// mustInstall installs the chart if it is not installed, and waits until the DaemonSet is ready.
func (tc *testCluster) mustInstall(t *testing.T) {
	t.Helper()
	tc.install(t, false)
}

// mustInstallAmbient installs the chart with ambient mode, if it is not installed.
func (tc *testCluster) mustInstallAmbient(t *testing.T) {
	t.Helper()
	tc.install(t, true, ambientArgs()...)
}

// install installs the chart if it is not installed. ambient states whether the arguments in extra
// enable ambient mode.
func (tc *testCluster) install(t *testing.T, ambient bool, extra ...string) {
	t.Helper()
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if tc.installed {
		return
	}
	begin := time.Now()
	args := append([]string{"install"}, tc.chartArgs(extra...)...)
	if _, err := tc.helm(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	tc.installed, tc.ambient = true, ambient
	t.Logf("helm install: %s", time.Since(begin).Round(time.Millisecond))
}

// mustUninstall uninstalls the chart if it is installed.
func (tc *testCluster) mustUninstall(t *testing.T) {
	t.Helper()
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if !tc.installed {
		return
	}
	begin := time.Now()
	if _, err := tc.helm(t.Context(), "uninstall", release, "--wait", "--timeout",
		installTimeout.String()); err != nil {
		t.Fatal(err)
	}
	tc.installed, tc.ambient = false, false
	t.Logf("helm uninstall: %s", time.Since(begin).Round(time.Millisecond))
}

// checkAgentsReady returns an error unless each node has a ready pod of the DaemonSet's current
// template.
func (tc *testCluster) checkAgentsReady(ctx context.Context, name string) error {
	d, err := tc.client.AppsV1().DaemonSets(agentNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s := d.Status
	if want := int32(len(tc.Nodes())); s.ObservedGeneration != d.Generation ||
		s.UpdatedNumberScheduled != want || s.NumberReady != want {
		return fmt.Errorf("%s: %d of %d nodes ready, %d updated", name, s.NumberReady, want,
			s.UpdatedNumberScheduled)
	}
	return nil
}

// agentPod returns the agent's pod on the first node.
func (tc *testCluster) agentPod(t *testing.T) *corev1.Pod { return tc.agentOn(t, tc.node()) }

// agentOn returns the agent's pod on a node.
func (tc *testCluster) agentOn(t *testing.T, n cluster.Node) *corev1.Pod {
	t.Helper()
	return tc.podOn(t, n, agentSelector)
}

// podOn returns the running pod of a DaemonSet on a node. The selector selects the DaemonSet's
// pods.
func (tc *testCluster) podOn(t *testing.T, n cluster.Node, selector string) *corev1.Pod {
	t.Helper()
	pods, err := tc.client.CoreV1().Pods(agentNamespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: selector,
		FieldSelector: "status.phase=Running,spec.nodeName=" + n.Name(),
	})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("pods with label %s on %s: %d, want 1: error %v", selector, n.Name(),
			len(pods.Items), err)
	}
	return &pods.Items[0]
}
