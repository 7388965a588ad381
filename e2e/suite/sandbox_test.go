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

// A sandbox is what the runtime of the node has of a pod.
type sandbox struct {
	// id is the runtime's, netns the path of the network namespace on the node, and pid that of the
	// process that holds it.
	id, netns string
	pid       int
}

// crictl asks the node's runtime, with patience for a busy machine.
func (w *world) crictl(ctx context.Context, args ...string) (string, error) {
	return w.onNode(ctx, append([]string{"crictl", "--timeout", "1m"}, args...)...)
}

// sandbox asks the node's runtime for the pod's newest sandbox.
func (w *world) sandbox(ctx context.Context, pod *corev1.Pod) (sandbox, error) {
	ids, err := w.crictl(ctx, "pods", "--quiet", "--no-trunc", "--latest", "--state", "ready",
		"--name", "^"+pod.Name+"$", "--namespace", "^"+pod.Namespace+"$")
	if err != nil {
		return sandbox{}, err
	}
	id := strings.TrimSpace(ids)
	if id == "" {
		return sandbox{}, errors.New("pod " + pod.Name + " has no sandbox")
	}
	text, err := w.crictl(ctx, "inspectp", id)
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

// mustSandbox is sandbox for pods that have one.
func (w *world) mustSandbox(t *testing.T, pod *corev1.Pod) sandbox {
	t.Helper()
	s, err := w.sandbox(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inNetns runs a command of the node in the pod's network namespace.
func (w *world) inNetns(ctx context.Context, s sandbox, argv ...string) (string, error) {
	return w.onNode(ctx, append([]string{"nsenter", "--net=" + s.netns}, argv...)...)
}

// containerPID is the process of a container, on the node.
func (w *world) containerPID(
	ctx context.Context, pod *corev1.Pod, container string,
) (string, error) {
	s, err := w.sandbox(ctx, pod)
	if err != nil {
		return "", err
	}
	ids, err := w.crictl(ctx, "ps", "--quiet", "--no-trunc", "--state", "running", "--pod", s.id,
		"--name", "^"+container+"$")
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(ids)
	if id == "" {
		return "", fmt.Errorf("container %s of %s does not run", container, pod.Name)
	}
	pid, err := w.crictl(ctx, "inspect", "--output", "go-template", "--template", "{{.info.pid}}",
		id)
	return strings.TrimSpace(pid), err
}
