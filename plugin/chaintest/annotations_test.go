package chaintest_test

import "testing"

// TestSkippedPodCausesNoRequest checks that ADD does not request a pod from the API server if it
// can skip the pod because of its namespace, or because of annotations that the runtime passes.
func TestSkippedPodCausesNoRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pod string
		chain
		requests int
	}{
		{
			"a pod that is not injected", "not-injected",
			chain{version: latest, passesAnnotations: true},
			0,
		},
		{"a pod without annotations from the runtime", "not-injected", chain{version: latest}, 1},
		{"a mesh pod", "sidecar", chain{version: latest, passesAnnotations: true}, 1},
		{
			"a pod of an excluded namespace", "sidecar",
			chain{
				version: latest, fields: map[string]any{"exclude_namespaces": []string{namespace}},
			},
			0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			p := n.newPod(t, c.pod)
			if _, err := p.execute(t, "ADD", c.chain, someResult(p)); err != nil {
				t.Fatal(err)
			}
			if got := len(n.api.Requests()); got != c.requests {
				t.Errorf("%d requests to the API server, want %d", got, c.requests)
			}
		})
	}
}
