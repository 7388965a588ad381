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
	r := &releaseTest{tc: tc, checkout: newCheckout(t), helmHome: t.TempDir()}
	previous, err := os.ReadFile("../../.ci/release-before")
	if err != nil {
		t.Fatal(err)
	}
	r.commit = r.git(t, "rev-parse", "HEAD")
	r.git(t, "checkout", "--quiet", "--detach", strings.TrimSpace(string(previous)))
	r.values = filepath.Join(t.TempDir(), exampleValues)
	if err := os.WriteFile(r.values, []byte(userValues), 0o644); err != nil {
		t.Fatal(err)
	}
	registry, certificates := tc.startRegistry(t)
	r.hub, r.certificates = registry+"/mesh", certificates
	return r
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
func (r *releaseTest) git(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", append([]string{"-C", r.checkout}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", c, err, out)
	}
	return strings.TrimSpace(string(out))
}

// checkOutThisVersion checks out this version, after the previous release has been built.
func (r *releaseTest) checkOutThisVersion(t *testing.T) {
	t.Helper()
	r.git(t, "checkout", "--quiet", "--detach", r.commit)
}

// run runs a command of the README with a shell in the checkout.
func (r *releaseTest) run(t *testing.T, command string) {
	t.Helper()
	command = strings.NewReplacer(exampleHub, r.hub, exampleValues, r.values).Replace(command)
	programs := filepath.Join(r.checkout, "bin", "e2e")
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	c.Dir = r.checkout
	c.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"),
		"KUBECONFIG="+r.tc.Kubeconfig(), "SSL_CERT_DIR="+r.certificates, "HELM_CACHE_HOME="+r.helmHome,
		"HELM_CONFIG_HOME="+r.helmHome, "HELM_DATA_HOME="+r.helmHome,
		// Reset the variables of the make that runs this test.
		"MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=")
	out, err := c.CombinedOutput()
	r.output = string(out)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Log(command)
}

// begin installs istio-cni and starts mesh pods.
func (r *releaseTest) begin(t *testing.T) {
	t.Helper()
	r.tc.installIstioCNI(t, "-f", r.values)
	r.ns = r.tc.newNamespace(t)
	r.startPod(t)
	r.churn = r.tc.startChurn(t, r.ns, r.pods[0], 2)
	r.startPodDuringChurn(t)
}

// startPodDuringChurn starts a permanent pod, and waits until some pods of churn have started and
// ended.
func (r *releaseTest) startPodDuringChurn(t *testing.T) {
	t.Helper()
	r.startPod(t)
	r.churn.waitForMore(t, 5)
}

// startPod starts a permanent pod, and checks that it reaches the previous one.
func (r *releaseTest) startPod(t *testing.T) {
	t.Helper()
	pod := r.tc.run(t, meshPod(r.ns, fmt.Sprintf("pod-%d", len(r.pods))))[0]
	if len(r.pods) > 0 {
		r.tc.mustCapture(t, pod, r.pods[len(r.pods)-1])
	}
	r.pods = append(r.pods, pod)
}

// mustRunRelease fails the test unless the agents are ready, run an image of the registry, and use
// the values file. It returns the image.
func (r *releaseTest) mustRunRelease(t *testing.T) string {
	t.Helper()
	if err := r.tc.checkAgentsReady(t.Context(), agent); err != nil {
		t.Error(err)
	}
	d, err := r.tc.client.AppsV1().DaemonSets(agentNamespace).Get(t.Context(), agent,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template
	image := pod.Spec.Containers[0].Image
	if !strings.HasPrefix(image, r.hub+"/sluice:") || !strings.Contains(image, "@sha256:") {
		t.Errorf("image %s, want an image of %s with a digest", image, r.hub)
	}
	if got := pod.Annotations[userAnnotation]; got != "mine" {
		t.Errorf("the release does not use the values file: annotation %s=%q", userAnnotation, got)
	}
	return image
}

// mustHaveNoFailedSandbox fails the test if the creation of a pod's sandbox failed for a reason
// other than istio-cni.
func (r *releaseTest) mustHaveNoFailedSandbox(t *testing.T) {
	t.Helper()
	events, err := r.tc.client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		report := t.Errorf
		if isFailureOfIstioCNI(e.Message) {
			report = t.Logf
		}
		report("the sandbox of %s/%s was not created: %s", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message)
	}
}
