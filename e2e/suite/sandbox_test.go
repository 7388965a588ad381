package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A sandbox is a pod's sandbox in the container runtime.
type sandbox struct {
	// id is the runtime's id, netns the path of the network namespace on the node, and pid the
	// process ID of the sandbox container.
	id, netns string
	pid       int
}

// crictl runs crictl on the node with a long timeout.
func (tc *testCluster) crictl(ctx context.Context, args ...string) (string, error) {
	return tc.onNode(ctx, append([]string{"crictl", "--timeout", "1m"}, args...)...)
}

// errNoSandbox is the error of a pod without a ready sandbox.
var errNoSandbox = errors.New("no ready sandbox")

// sandbox returns the newest sandbox of a pod.
func (tc *testCluster) sandbox(ctx context.Context, pod *corev1.Pod) (sandbox, error) {
	ids, err := tc.crictl(ctx, "pods", "--quiet", "--no-trunc", "--latest", "--state", "ready",
		"--name", "^"+pod.Name+"$", "--namespace", "^"+pod.Namespace+"$")
	if err != nil {
		return sandbox{}, err
	}
	id := strings.TrimSpace(ids)
	if id == "" {
		return sandbox{}, fmt.Errorf("pod %s: %w", pod.Name, errNoSandbox)
	}
	text, err := tc.crictl(ctx, "inspectp", id)
	if err != nil {
		return sandbox{}, err
	}
	var inspected struct {
		Info struct {
			PID         int
			RuntimeSpec struct {
				Linux struct {
					Namespaces []struct{ Type, Path string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &inspected); err != nil {
		return sandbox{}, fmt.Errorf("crictl inspectp: %w", err)
	}
	for _, n := range inspected.Info.RuntimeSpec.Linux.Namespaces {
		if n.Type == "network" && n.Path != "" {
			return sandbox{id, n.Path, inspected.Info.PID}, nil
		}
	}
	return sandbox{}, fmt.Errorf("sandbox %s has no network namespace: %s", id, text)
}

// mustSandbox is like sandbox, and fails the test on errors.
func (tc *testCluster) mustSandbox(t *testing.T, pod *corev1.Pod) sandbox {
	t.Helper()
	s, err := tc.sandbox(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inNetns runs a command of the node in the pod's network namespace.
func (tc *testCluster) inNetns(ctx context.Context, s sandbox, argv ...string) (string, error) {
	return tc.onNode(ctx, append([]string{"nsenter", "--net=" + s.netns}, argv...)...)
}

// containerPID returns the process ID of a container on the node.
func (tc *testCluster) containerPID(
	ctx context.Context, pod *corev1.Pod, container string,
) (string, error) {
	s, err := tc.sandbox(ctx, pod)
	if err != nil {
		return "", err
	}
	ids, err := tc.crictl(ctx, "ps", "--quiet", "--no-trunc", "--state", "running", "--pod", s.id,
		"--name", "^"+container+"$")
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(ids)
	if id == "" {
		return "", fmt.Errorf("container %s of %s is not running", container, pod.Name)
	}
	pid, err := tc.crictl(ctx, "inspect", "--output", "go-template", "--template", "{{.info.pid}}",
		id)
	return strings.TrimSpace(pid), err
}
