package cluster_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

func TestSelects(t *testing.T) {
	node := &cluster.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", Labels: map[string]string{"role": "worker", "cores": "8"},
	}}
	affinity := func(terms string) string {
		return `{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` + terms + `]}}}}`
	}
	for _, tc := range []struct {
		name, spec string
		want       bool
	}{
		{"a pod without constraints runs on every node", `{}`, true},
		{"the node has the label", `{"nodeSelector":{"role":"worker"}}`, true},
		{"the node has the label with another value", `{"nodeSelector":{"role":"edge"}}`, false},
		{"the node lacks the label", `{"nodeSelector":{"gpu":"yes"}}`, false},
		{
			"the node has one of the values",
			affinity(`{"matchExpressions":[{"key":"role","operator":"In","values":["edge","worker"]}]}`),
			true,
		},
		{
			"the node has an excluded value",
			affinity(`{"matchExpressions":[{"key":"role","operator":"NotIn","values":["worker"]}]}`),
			false,
		},
		{
			"a label that must be missing is missing",
			affinity(`{"matchExpressions":[{"key":"gpu","operator":"DoesNotExist"}]}`), true,
		},
		{
			"numbers are compared numerically",
			affinity(`{"matchExpressions":[{"key":"cores","operator":"Gt","values":["16"]}]}`),
			false,
		},
		{
			"one of two terms is sufficient",
			affinity(`{"matchExpressions":[{"key":"gpu","operator":"Exists"}]},{"matchExpressions":[{"key":"role","operator":"Exists"}]}`), true,
		},
		{
			"all requirements of a term must match",
			affinity(`{"matchExpressions":[{"key":"gpu","operator":"Exists"},{"key":"role","operator":"Exists"}]}`), false,
		},
		{
			"the node is named",
			affinity(`{"matchFields":[{"key":"metadata.name","operator":"In","values":["node-1"]}]}`),
			true,
		},
		{
			"another node is named",
			affinity(`{"matchFields":[{"key":"metadata.name","operator":"In","values":["node-2"]}]}`),
			false,
		},
		{"an empty term matches nothing", affinity(`{}`), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var spec cluster.PodSpec
			if err := json.Unmarshal([]byte(tc.spec), &spec); err != nil {
				t.Fatal(err)
			}
			if got, err := spec.Selects(node); got != tc.want || err != nil {
				t.Errorf("selects: %v, %v; want %v", got, err, tc.want)
			}
		})
	}
	t.Run("an unknown operator is an error", func(t *testing.T) {
		var spec cluster.PodSpec
		if err := json.Unmarshal(
			[]byte(affinity(`{"matchExpressions":[{"key":"a","operator":"Like"}]}`)),
			&spec); err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Selects(node); err == nil {
			t.Error("Selects returned no error for an unknown operator")
		}
	})
}
