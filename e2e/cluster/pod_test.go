package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/image"
)

const answerImage = "e2e.sluice.test/answer:1"

// pack writes an archive with an image of testdata/answer, and returns its path.
func pack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "root", "answer"),
		"./testdata/answer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	var archive bytes.Buffer
	_, err := image.Write(&archive, image.Spec{
		Ref: answerImage, Entrypoint: []string{"/answer"},
		Platforms: []image.Platform{{
			Architecture: runtime.GOARCH, Root: os.DirFS(filepath.Join(dir, "root")),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "answer.tar")
	if err := os.WriteFile(file, archive.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

const podManifest = `
metadata: {labels: {app: answer}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: answer
    image: e2e.sluice.test/answer:1
    imagePullPolicy: Never
    args: [serve]
    ports: [{containerPort: 8080, hostPort: 18080}]
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
    securityContext: {privileged: true}
    volumeMounts:
    - {name: etc, mountPath: /node/etc/cni/net.d}
    - {name: opt, mountPath: /node/opt/cni/bin}
    - {name: netns, mountPath: /node/run/netns, mountPropagation: HostToContainer}
  volumes:
  - {name: etc, hostPath: {path: /etc/cni/net.d}}
  - {name: opt, hostPath: {path: /opt/cni/bin}}
  - {name: netns, hostPath: {path: /var/run/netns}}
`

const serviceManifest = `
metadata: {name: hello}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: answer}
  ports: [{port: 80, targetPort: 8080}]
`

func decode[T any](t *testing.T, manifest string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// run creates a pod, and returns when it is ready.
func (s *testCluster) run(t *testing.T, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := decode[corev1.Pod](t, podManifest)
	pod.Name = name
	if change != nil {
		change(pod)
	}
	if _, err := s.clients.CoreV1().Pods("default").Create(t.Context(), pod,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s.waitForPod(t, name, 0)
}

// waitForPod waits until a container of the pod is ready and has been restarted at least restarts
// times.
func (s *testCluster) waitForPod(t *testing.T, name string, restarts int32) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+name+" is ready", func(ctx context.Context) error {
		var err error
		if pod, err = s.clients.CoreV1().Pods("default").Get(ctx, name,
			metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.Ready && c.RestartCount >= restarts {
				return nil
			}
		}
		return fmt.Errorf("status %+v", pod.Status)
	})
	return pod
}

// serve creates a Service for all pods of this package.
func (s *testCluster) serve(t *testing.T) *corev1.Service {
	t.Helper()
	service, err := s.clients.CoreV1().Services("default").Create(t.Context(),
		decode[corev1.Service](t, serviceManifest), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// exec runs the program answer in a pod with kubectl exec.
func (s *testCluster) exec(ctx context.Context, pod string, args ...string) (string, error) {
	argv := append([]string{"kubectl", "exec", pod, "--", "/answer"}, args...)
	out, err := s.Nodes()[0].Command(ctx, argv...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
