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

// The words of the front page that stand for what a user has.
const (
	exampleHub    = "registry.example/mesh"
	exampleValues = "your-istio-cni-values.yaml"
)

// userValues are values of a user of istio-cni. The annotation shows that a chart has them.
const (
	userAnnotation = "release.test/values"
	userValues     = "podAnnotations: {" + userAnnotation + `: "mine"}
excludeNamespaces: [kube-system, without-mesh]
logging: {level: info}
`
)

// A user follows the front page on a cluster.
type user struct {
	w *world
	// hub and values replace the words of the examples.
	hub, values string
	// checkout is where the commands run, helmHome is Helm's, and certificates is a directory with
	// those of authorities that programs trust.
	checkout, helmHome, certificates string
	// this is the commit of this version.
	this string

	// output is what the last command printed, and first the image that was installed first.
	output, first string
	// ns has the pods of the user's mesh: pods are started one after the other and stay, and those
	// of churn come and go.
	ns    string
	pods  []*corev1.Pod
	churn *churn
}

// newUser returns a user who has a registry, a values file, and a checkout of the release before.
func newUser(t *testing.T, w *world) *user {
	t.Helper()
	u := &user{w: w, checkout: newCheckout(t), helmHome: t.TempDir()}
	before, err := os.ReadFile("../../.ci/release-before")
	if err != nil {
		t.Fatal(err)
	}
	u.this = u.git(t, "rev-parse", "HEAD")
	u.git(t, "checkout", "--quiet", "--detach", strings.TrimSpace(string(before)))
	u.values = filepath.Join(t.TempDir(), exampleValues)
	if err := os.WriteFile(u.values, []byte(userValues), 0o644); err != nil {
		t.Fatal(err)
	}
	registry, certificates := w.startRegistry(t)
	u.hub, u.certificates = registry+"/mesh", certificates
	return u
}

// newCheckout clones the commit of this checkout. It has the Helm that its Makefile would build.
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

// git runs git in the checkout, and returns what it prints.
func (u *user) git(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", append([]string{"-C", u.checkout}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", c, err, out)
	}
	return strings.TrimSpace(string(out))
}

// takeThisVersion checks out this version, after the release before has been built.
func (u *user) takeThisVersion(t *testing.T) {
	t.Helper()
	u.git(t, "checkout", "--quiet", "--detach", u.this)
}

// run runs a command of the front page in the checkout, in a shell.
func (u *user) run(t *testing.T, command string) {
	t.Helper()
	command = strings.NewReplacer(exampleHub, u.hub, exampleValues, u.values).Replace(command)
	programs := filepath.Join(u.checkout, "bin", "e2e")
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	c.Dir = u.checkout
	c.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"),
		"KUBECONFIG="+u.w.Kubeconfig(), "SSL_CERT_DIR="+u.certificates, "HELM_CACHE_HOME="+u.helmHome,
		"HELM_CONFIG_HOME="+u.helmHome, "HELM_DATA_HOME="+u.helmHome,
		// Those of the make that runs this test.
		"MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=")
	out, err := c.CombinedOutput()
	u.output = string(out)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Log(command)
}

// begin installs istio-cni and starts the mesh.
func (u *user) begin(t *testing.T) {
	t.Helper()
	u.w.installIstioCNI(t, "--create-namespace", "-f", u.values)
	u.ns = u.w.newNamespace(t)
	u.startPod(t)
	u.churn = u.w.startChurn(t, u.ns, u.pods[0], 2)
	u.startPods(t)
}

// startPods returns when a pod that stays and some of those that come and go have been started.
func (u *user) startPods(t *testing.T) {
	t.Helper()
	u.startPod(t)
	u.churn.more(t, 5)
}

// startPod starts a pod that stays. It reaches the one before.
func (u *user) startPod(t *testing.T) {
	t.Helper()
	pod := u.w.run(t, inMesh(u.ns, fmt.Sprintf("pod-%d", len(u.pods))))[0]
	if len(u.pods) > 0 {
		u.w.mustCapture(t, pod, u.pods[len(u.pods)-1])
	}
	u.pods = append(u.pods, pod)
}

// mustRunRelease fails the test unless the agents run, from an image of the user's registry and
// with the user's values. It returns the image.
func (u *user) mustRunRelease(t *testing.T) string {
	t.Helper()
	if err := u.w.agentsReady(t.Context(), agent); err != nil {
		t.Error(err)
	}
	d, err := u.w.client.AppsV1().DaemonSets(agentNamespace).Get(t.Context(), agent,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template
	image := pod.Spec.Containers[0].Image
	if !strings.HasPrefix(image, u.hub+"/sluice:") || !strings.Contains(image, "@sha256:") {
		t.Errorf("the image is %s, want one of %s with a digest", image, u.hub)
	}
	if got := pod.Annotations[userAnnotation]; got != "mine" {
		t.Errorf("the chart has not the user's values: annotation %s=%q", userAnnotation, got)
	}
	return image
}

// mustHaveNoFailedSandbox fails the test if the sandbox of any pod had to be created again, other
// than because of istio-cni.
func (u *user) mustHaveNoFailedSandbox(t *testing.T) {
	t.Helper()
	events, err := u.w.client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(),
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
