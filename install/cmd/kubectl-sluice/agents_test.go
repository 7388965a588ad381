package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPodOfAnotherUserDoesNotAnswerForAnAgent checks that a pod of another user that has the labels
// of a node agent does not answer for one.
func TestPodOfAnotherUserDoesNotAnswerForAnAgent(t *testing.T) {
	const status = `{"ready":true,"agentVersion":"v1"}`
	for name, row := range map[string]struct {
		agents string // namespace of the node agent of node a
		forged string // namespace of the pod on node b with the labels of a node agent, if any
		args   string
		code   int
		ran    string // pods in which commands ran
		words  string
	}{
		"a forged pod beside agents in istio-system": {
			"istio-system", "shop", "status", 1, "sluice-node-a", "b: the node has no node agent",
		},
		"agents in another namespace": {
			"mesh", "", "status", 1, "sluice-node-a", "b: the node has no node agent",
		},
		"a forged pod beside agents in another namespace": {
			"mesh", "shop", "status", 2, "", "several namespaces: mesh, shop; set --agent-namespace",
		},
		"a command for several pods beside a forged pod": {
			"mesh", "shop", "check shop/deployment/web", 2, "",
			"pod shop/web-2: pods with the labels of node agents (k8s-app=sluice-node) exist in several",
		},
		"the namespace of the agents is set": {
			"mesh", "shop", "status --agent-namespace mesh", 1, "sluice-node-a",
			"b: the node has no node agent",
		},
		"a command for a pod on the node of the forged pod": {
			"istio-system", "shop", "check shop/far", 3, "", "no node agent runs on node b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster()
			f.pods[0].Namespace = row.agents
			if row.forged != "" {
				f.pods = append(f.pods, pod(row.forged, "forged", "b", "k8s-app=sluice-node"))
			}
			f.command = func(_ string, _ []string, _ io.Reader, out, _ io.Writer) int {
				_, _ = io.WriteString(out, status)
				return 0
			}
			code, stdout, stderr := f.sluice(t.Context(), t, nil, strings.Fields(row.args)...)
			var ran []string
			for _, command := range f.ran {
				name, _, _ := strings.Cut(command, ":")
				ran = append(ran, name)
			}
			if code != row.code || strings.Join(ran, " ") != row.ran ||
				!strings.Contains(stdout+stderr, row.words) {
				t.Errorf("exit code %d, commands in %q, output %s%s; want %d, %q, and %q", code, ran, stdout,
					stderr, row.code, row.ran, row.words)
			}
		})
	}
}

// TestAgentsThatMayNotBeListedAreUnknown covers a user who may not list the pods of all
// namespaces, and agents outside of istio-system. It is unknown whether nodes have an agent.
func TestAgentsThatMayNotBeListedAreUnknown(t *testing.T) {
	for _, row := range []struct {
		args  string
		code  int
		words string
	}{
		{"status", 3, "the namespace istio-system has no node agents, and "},
		{"check shop/web-1", 3, "set --agent-namespace to the namespace of the node agents"},
		{"status --agent-namespace mesh", 1, "b: the node has no node agent"},
	} {
		f := newFakeCluster()
		f.allPodsForbidden = true
		f.pods[0].Namespace = "mesh"
		f.command = func(_ string, _ []string, _ io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, `{"ready":true,"agentVersion":"v1"}`)
			return 0
		}
		code, stdout, stderr := f.sluice(t.Context(), t, nil, strings.Fields(row.args)...)
		if code != row.code || !strings.Contains(stdout+stderr, row.words) {
			t.Errorf("%s: exit code %d, output %s%s; want %d and %q", row.args, code, stdout, stderr,
				row.code, row.words)
		}
	}
}

// TestNamespaceOfAgentsIsSearchedOnce checks that a command searches the namespace of the node
// agents once, even for several pods.
func TestNamespaceOfAgentsIsSearchedOnce(t *testing.T) {
	for name, row := range map[string]struct {
		agents string // namespace of the node agents
		want   []string
	}{
		"istio-system": {"istio-system", []string{"istio-system, 1, "}},
		"another":      {"mesh", []string{"istio-system, 1, ", ", , "}},
	} {
		for _, verb := range []string{"check", "trace"} { // trace runs for all pods at the same time
			t.Run(name+" "+verb, func(t *testing.T) {
				f := newFakeCluster()
				f.pods[0].Namespace = row.agents
				f.pods = append(f.pods, pod("shop", "web-3", "a", "app=web"))
				if code, _, stderr := f.sluice(t.Context(), t, nil, verb, "shop/deployment/web"); code != 0 {
					t.Fatalf("exit code %d, want 0: %s", code, stderr)
				}
				want := append(row.want, slices.Repeat([]string{row.agents + ", , a"}, 3)...)
				if !slices.Equal(f.agentLists, want) {
					t.Errorf("lists of node agents (namespace, limit, node): %q, want %q", f.agentLists, want)
				}
			})
		}
	}
}

// TestAnEndedPodIsNotTheNodeAgent checks that a pod that has ended, as after an eviction, is not
// the node agent of its node if there is another pod.
func TestAnEndedPodIsNotTheNodeAgent(t *testing.T) {
	for name, row := range map[string]struct {
		phases []corev1.PodPhase // of the pods in the order of the API server
		words  string
	}{
		"an evicted pod beside a running one": {
			[]corev1.PodPhase{corev1.PodFailed, corev1.PodRunning}, "1 of 1 nodes are ready",
		},
		"an evicted pod beside a pending one": {
			[]corev1.PodPhase{corev1.PodFailed, corev1.PodPending},
			"a: the node agent is not running: phase Pending",
		},
		"a pending pod beside a running one": {
			[]corev1.PodPhase{corev1.PodPending, corev1.PodRunning}, "1 of 1 nodes are ready",
		},
		"only an evicted pod": {
			[]corev1.PodPhase{corev1.PodFailed}, "a: the node agent is not running: phase Failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster()
			f.nodes, f.pods = []string{"a"}, nil
			for i, phase := range row.phases {
				p := pod("istio-system", fmt.Sprintf("sluice-node-%d", i), "a", "k8s-app=sluice-node")
				p.Status.Phase = phase
				f.pods = append(f.pods, p)
			}
			f.command = func(_ string, _ []string, _ io.Reader, out, _ io.Writer) int {
				_, _ = io.WriteString(out, `{"ready":true,"agentVersion":"v1"}`)
				return 0
			}
			if _, stdout, stderr := f.sluice(t.Context(), t, nil, "status"); !strings.Contains(stdout,
				row.words) {
				t.Errorf("output %s%s, want %q", stdout, stderr, row.words)
			}
		})
	}
}

// TestNodesWithAnotherOperatingSystemAreOmitted checks that a node on which no node agent can run
// is not reported as a problem.
func TestNodesWithAnotherOperatingSystemAreOmitted(t *testing.T) {
	f := newFakeCluster()
	f.nodes = []string{"linux:a", "windows:w"}
	f.command = func(_ string, _ []string, _ io.Reader, out, _ io.Writer) int {
		_, _ = io.WriteString(out, `{"ready":true,"agentVersion":"v1"}`)
		return 0
	}
	code, stdout, stderr := f.sluice(t.Context(), t, nil, "status")
	if code != 0 || !strings.Contains(stdout, "1 of 1 nodes are ready") {
		t.Errorf("exit code %d, output %s%s; want 0 and one node", code, stdout, stderr)
	}
}
