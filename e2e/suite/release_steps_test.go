package suite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placeholders in the README's commands.
const (
	exampleHub    = "registry.example/mesh"
	exampleValues = "your-istio-cni-values.yaml"
)

// userValues is a values file of istio-cni. The annotation shows that a release uses the file.
const (
	userAnnotation = "release.test/values"
	userValues     = "podAnnotations: {" + userAnnotation + `: "mine"}
excludeNamespaces: [kube-system, without-mesh]
logging: {level: info}
`
)

// A releaseTest runs the README's commands on a cluster.
type releaseTest struct {
	tc *testCluster
	// hub and values replace the placeholders.
	hub, values string
	// checkout is the working directory of the commands, helmHome is Helm's directory, and
	// certificates is the directory of trusted CA certificates.
	checkout, helmHome, certificates string
	// commit is the commit of this version.
	commit string

	// output is the output of the last command. firstImage is the image of Sluice's first release
	// on the cluster.
	output, firstImage string
	// ns is the namespace of the mesh pods. The pods in pods keep running. churn continuously
	// starts and stops other pods.
	ns    string
	pods  []*corev1.Pod
	churn *podChurn
}

// newReleaseTest starts a registry, and creates a values file and a checkout of the previous
// release.
func newReleaseTest(t *testing.T, tc *testCluster) *releaseTest {
	t.Helper()
	u := &releaseTest{tc: tc, checkout: newCheckout(t), helmHome: t.TempDir()}
	previous, err := os.ReadFile("../../.ci/release-before")
	if err != nil {
		t.Fatal(err)
	}
	u.commit = u.git(t, "rev-parse", "HEAD")
	u.git(t, "checkout", "--quiet", "--detach", strings.TrimSpace(string(previous)))
	u.values = filepath.Join(t.TempDir(), exampleValues)
	if err := os.WriteFile(u.values, []byte(userValues), 0o644); err != nil {
		t.Fatal(err)
	}
	registry, certificates := tc.startRegistry(t)
	u.hub, u.certificates = registry+"/mesh", certificates
	return u
}

// newCheckout clones the commit of this checkout, and copies the program helm into the clone's bin.
func newCheckout(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sluice")
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "--local",
		"--no-hardlinks", "../..", dir).CombinedOutput(); err != nil {
		t.Fatalf("clone the checkout: %v: %s", err, out)
	}
	helm, err := os.ReadFile(filepath.Join(bin, "e2e", "helm"))
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(dir, "bin", "e2e")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(programs, "helm"), helm, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// git runs git in the checkout, and returns its output.
func (u *releaseTest) git(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", append([]string{"-C", u.checkout}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", c, err, out)
	}
	return strings.TrimSpace(string(out))
}

// checkOutThisVersion checks out this version, after the previous release has been built.
func (u *releaseTest) checkOutThisVersion(t *testing.T) {
	t.Helper()
	u.git(t, "checkout", "--quiet", "--detach", u.commit)
}

// run runs a command of the README with a shell in the checkout.
func (u *releaseTest) run(t *testing.T, command string) {
	t.Helper()
	command = strings.NewReplacer(exampleHub, u.hub, exampleValues, u.values).Replace(command)
	programs := filepath.Join(u.checkout, "bin", "e2e")
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	c.Dir = u.checkout
	c.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"),
		"KUBECONFIG="+u.tc.Kubeconfig(), "SSL_CERT_DIR="+u.certificates, "HELM_CACHE_HOME="+u.helmHome,
		"HELM_CONFIG_HOME="+u.helmHome, "HELM_DATA_HOME="+u.helmHome,
		// Reset the variables of the make that runs this test.
		"MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=")
	out, err := c.CombinedOutput()
	u.output = string(out)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Log(command)
}

// begin installs istio-cni and starts mesh pods.
func (u *releaseTest) begin(t *testing.T) {
	t.Helper()
	u.tc.installIstioCNI(t, "--create-namespace", "-f", u.values)
	u.ns = u.tc.newNamespace(t)
	u.startPod(t)
	u.churn = u.tc.startChurn(t, u.ns, u.pods[0], 2)
	u.startPods(t)
}

// startPods starts a permanent pod, and waits until some pods of churn have started and ended.
func (u *releaseTest) startPods(t *testing.T) {
	t.Helper()
	u.startPod(t)
	u.churn.waitForMore(t, 5)
}

// startPod starts a permanent pod, and checks that it reaches the previous one.
func (u *releaseTest) startPod(t *testing.T) {
	t.Helper()
	pod := u.tc.run(t, meshPod(u.ns, fmt.Sprintf("pod-%d", len(u.pods))))[0]
	if len(u.pods) > 0 {
		u.tc.mustCapture(t, pod, u.pods[len(u.pods)-1])
	}
	u.pods = append(u.pods, pod)
}

// mustRunRelease fails the test unless the agents are ready, with an image of the registry and the
// values file. It returns the image.
func (u *releaseTest) mustRunRelease(t *testing.T) string {
	t.Helper()
	if err := u.tc.checkAgentsReady(t.Context(), agent); err != nil {
		t.Error(err)
	}
	d, err := u.tc.client.AppsV1().DaemonSets(agentNamespace).Get(t.Context(), agent,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template
	image := pod.Spec.Containers[0].Image
	if !strings.HasPrefix(image, u.hub+"/sluice:") || !strings.Contains(image, "@sha256:") {
		t.Errorf("image %s, want an image of %s with a digest", image, u.hub)
	}
	if got := pod.Annotations[userAnnotation]; got != "mine" {
		t.Errorf("the release does not use the values file: annotation %s=%q", userAnnotation, got)
	}
	return image
}

// mustHaveNoFailedSandbox fails the test if the creation of a pod's sandbox failed for a reason
// other than istio-cni.
func (u *releaseTest) mustHaveNoFailedSandbox(t *testing.T) {
	t.Helper()
	events, err := u.tc.client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		report := t.Errorf
		if isFailureOfIstioCNI(e.Message) {
			report = t.Logf
		}
		report("%s/%s: %s", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message)
	}
}
