package chaintest_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestAnyArgsRequestOnlyTheNamedPod adds a mesh pod with valid and invalid CNI_ARGS. Whatever they
// contain, the plugin requests only pods of the test from the API server.
func TestAnyArgsRequestOnlyTheNamedPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, c := range []struct {
		name, args string
		// captured is set if the pod is found and gets its rules. failure is a part of the error of
		// ADD, or empty if ADD succeeds.
		captured bool
		failure  string
	}{
		{
			"containerd's order",
			"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};K8S_POD_UID={uid}", true,
			"",
		},
		{
			"another order",
			"K8S_POD_UID={uid};K8S_POD_NAME={name};IgnoreUnknown=1;K8S_POD_NAMESPACE=shop", true,
			"",
		},
		{
			"unknown keys, with and without IgnoreUnknown",
			"K8S_POD_NAME={name};K8S_POD_NAMESPACE=shop;VENDOR_KEY=x;VENDOR_KEY=y", true, "",
		},
		{
			"an old runtime without the UID",
			"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name}", true, "",
		},
		{"semicolons at the ends", ";K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};", true, ""},
		{"no pod", "", false, ""},
		{"no keys of Kubernetes", "IgnoreUnknown=1;FOO=BAR", false, ""},
		{
			"the UID of another pod",
			"K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};K8S_POD_UID=other", false, "replaced",
		},
		{
			"a name with ..",
			"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=../../../namespaces/kube-system", false,
			"not-found",
		},
		{
			"a namespace with ..", "K8S_POD_NAMESPACE=../secrets;K8S_POD_NAME={name}",
			false, "not-found",
		},
		{
			"a name with a query", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name}?watch=1", false,
			"not-found",
		},
		{
			"a name with an encoded slash", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=a%2Fb", false,
			"not-found",
		},
		{
			"a name with a line break", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=a\nHost: evil", false,
			"not-found",
		},
		{
			"a very long name",
			"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + strings.Repeat("a", 100_000), false, "aaa",
		},
		{"not a pair", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME", false, "not a pair"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := n.newPod(t, "sidecar")
			x := p.execution(t, "ADD",
				chain{version: latest, fields: map[string]any{"api_budget": "1s"}}, someResult(p))
			x.environment["CNI_ARGS"] = strings.NewReplacer("{name}", p.name, "{uid}",
				p.uid).Replace(c.args)
			err := x.run(n)
			switch {
			case c.failure == "" && err != nil:
				t.Errorf("ADD: %v", err)
			case c.failure != "" && (err == nil || !strings.Contains(err.Error(), c.failure)):
				t.Errorf("ADD: %v; want an error with %q", err, c.failure)
			case err != nil && strings.ContainsAny(err.Error(), "\n\r"):
				t.Errorf("the error has several lines: %q", err)
			}
			if got := p.rules(t) != ""; got != c.captured {
				t.Errorf("the pod has rules: %v, want %v", got, c.captured)
			}
		})
	}
	t.Cleanup(func() {
		for _, r := range n.api.Requests() {
			if !strings.HasPrefix(r.Path,
				fmt.Sprintf("/api/v1/namespaces/%s/pods/orders-", namespace)) {
				t.Errorf("the API server received a request for %q, want only pods of the test", r.Path)
			}
		}
	})
}
