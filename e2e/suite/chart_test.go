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
	// release is the chart's name in the cluster, agentNamespace where it is installed, and agent
	// its DaemonSet.
	release        = "sluice"
	agentNamespace = "istio-system"
	agent          = "sluice-node"
	// agentSelector finds the agents' pods.
	agentSelector = "k8s-app=" + agent
)

// installTime bounds an installation, and whatever else Helm waits for.
var installTime = slowness * time.Minute

// helm runs Helm against the cluster, and returns what it prints.
func (w *world) helm(ctx context.Context, args ...string) (string, error) {
	program, err := filepath.Abs(filepath.Join(bin, "e2e", "helm"))
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, program,
		append(args, "--kubeconfig", w.Kubeconfig(), "-n", agentNamespace)...)
	home := filepath.Join(os.TempDir(), "sluice-helm")
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// chartArgs are a user's, who has the image on his nodes.
func (w *world) chartArgs(more ...string) []string {
	hub, tag, _ := strings.Cut(w.image, "/sluice:")
	return append([]string{
		release, chartDir, "--create-namespace", "--wait", "--timeout", installTime.String(),
		"--set", "hub=" + hub, "--set", "tag=" + tag, "--set", "pullPolicy=Never",
		"--set", "cniBinDir=" + pluginDir(),
	}, more...)
}

// mustInstall installs the chart if it is not installed. Helm returns when the DaemonSet is ready.
func (w *world) mustInstall(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.installed {
		return
	}
	begin := time.Now()
	if _, err := w.helm(t.Context(), append([]string{"install"}, w.chartArgs()...)...); err != nil {
		t.Fatal(err)
	}
	w.installed = true
	t.Logf("helm install: %s", time.Since(begin).Round(time.Millisecond))
}

// mustUninstall is the other way round.
func (w *world) mustUninstall(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.installed {
		return
	}
	begin := time.Now()
	if _, err := w.helm(t.Context(), "uninstall", release, "--wait", "--timeout",
		installTime.String()); err != nil {
		t.Fatal(err)
	}
	w.installed, w.ambient = false, false
	t.Logf("helm uninstall: %s", time.Since(begin).Round(time.Millisecond))
}

// agentsReady tells by an error if not all agents are ready, in the version that the DaemonSet has
// now.
func (w *world) agentsReady(ctx context.Context, name string) error {
	d, err := w.client.AppsV1().DaemonSets(agentNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s := d.Status
	if want := int32(len(w.Nodes())); s.ObservedGeneration != d.Generation ||
		s.UpdatedNumberScheduled != want || s.NumberReady != want {
		return fmt.Errorf("%s: %d of %d nodes ready, %d updated", name, s.NumberReady, want,
			s.UpdatedNumberScheduled)
	}
	return nil
}

// agentPod is the agent's pod on the first node.
func (w *world) agentPod(t *testing.T) *corev1.Pod { return w.agentOn(t, w.node()) }

// agentOn is the agent's pod on a node.
func (w *world) agentOn(t *testing.T, n cluster.Node) *corev1.Pod {
	t.Helper()
	pods, err := w.client.CoreV1().Pods(agentNamespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: agentSelector,
		FieldSelector: "status.phase=Running,spec.nodeName=" + n.Name(),
	})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("the agent's pod on %s: found %d: %v", n.Name(), len(pods.Items), err)
	}
	return &pods.Items[0]
}
