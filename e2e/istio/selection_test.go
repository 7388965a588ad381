package istio_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"istio.io/istio/cni/pkg/util"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// randomPods is the number of compared pods.
const randomPods = 20000

// TestAmbientSelectorsMatchIstios checks that Sluice and istio-cni select the same pods for ambient
// mode, for random selectors, pods and namespaces.
func TestAmbientSelectorsMatchIstios(t *testing.T) {
	s := selectionGenerator{rand.New(rand.NewPCG(randomSeed(t), 1))}
	standard, err := json.Marshal(decide.DefaultAmbientSettings().Selectors)
	if err != nil {
		t.Fatal(err)
	}
	enrolled := 0
	for range randomPods {
		selectors := standard
		if s.IntN(2) == 0 {
			selectors = s.selectors(t)
		}
		pod, namespace := s.pod(t), s.labels()
		want := inAmbientIstio(t, selectors, pod, namespace)
		got := inAmbientSluice(t, selectors, pod, namespace)
		if want != got {
			t.Fatalf("selectors %s\npod %s\nnamespace %v\nin ambient mode: Istio %v, Sluice %v", selectors, pod,
				namespace, want, got)
		}
		if got {
			enrolled++
		}
	}
	if enrolled < randomPods/10 || enrolled > randomPods*9/10 {
		t.Errorf("%d of %d pods are in ambient mode, want 10 to 90 %%", enrolled, randomPods)
	}
}

// inAmbientIstio reports whether istio-cni's code selects the pod for ambient mode. inAmbientSluice
// reports whether the plugin's code does.
func inAmbientIstio(t *testing.T, selectors, object []byte, namespace map[string]string) bool {
	t.Helper()
	var list []util.EnablementSelector
	var pod corev1.Pod
	decode(t, selectors, &list)
	decode(t, object, &pod)
	compiled, err := util.NewCompiledEnablementSelectors(list)
	if err != nil {
		t.Fatalf("selectors %s: %v", selectors, err)
	}
	return compiled.Matches(&pod, namespace)
}

func inAmbientSluice(t *testing.T, selectors, object []byte, namespace map[string]string) bool {
	t.Helper()
	ambient := decide.DefaultAmbientSettings()
	ambient.Selectors = nil
	pod := new(decide.Pod)
	decode(t, selectors, &ambient.Selectors)
	decode(t, object, pod)
	for _, selector := range ambient.Selectors {
		if err := selector.Validate(); err != nil {
			t.Fatalf("selectors %s: %v", selectors, err)
		}
	}
	d := decide.Decide(decide.Input{
		Attachment: decide.Attachment{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name},
		Pod:        pod, Namespace: &decide.Namespace{Metadata: decide.Metadata{Labels: namespace}},
	}, &decide.Settings{Ambient: &ambient})
	return d.Outcome == decide.Ambient
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// A selectionGenerator generates selectors and pods from few words, so that they often match.
type selectionGenerator struct{ *rand.Rand }

func (s selectionGenerator) pick(words ...string) string { return words[s.IntN(len(words))] }

func (s selectionGenerator) key() string { return s.pick("istio.io/dataplane-mode", "app", "tier") }

func (s selectionGenerator) value() string { return s.pick("ambient", "none", "web", "") }

func (s selectionGenerator) labels() map[string]string {
	labels := map[string]string{}
	for range s.IntN(3) {
		labels[s.key()] = s.value()
	}
	return labels
}

func (s selectionGenerator) pod(t *testing.T) []byte {
	metadata := map[string]any{"namespace": "shop", "name": "web", "labels": s.labels()}
	if s.IntN(8) == 0 {
		metadata["annotations"] = map[string]string{"sidecar.istio.io/status": s.pick("", "{}")}
	}
	return encode(t, map[string]any{
		"metadata": metadata, "spec": map[string]any{"hostNetwork": s.IntN(8) == 0},
	})
}

func (s selectionGenerator) selectors(t *testing.T) []byte {
	list := []map[string]any{}
	for range s.IntN(4) {
		selector := map[string]any{}
		for _, field := range []string{"podSelector", "namespaceSelector"} {
			if s.IntN(3) > 0 {
				selector[field] = s.selector()
			}
		}
		list = append(list, selector)
	}
	return encode(t, list)
}

func (s selectionGenerator) selector() map[string]any {
	selector := map[string]any{}
	if s.IntN(2) == 0 {
		selector["matchLabels"] = s.labels()
	}
	var expressions []map[string]any
	for range s.IntN(3) {
		e := map[string]any{
			"key": s.key(), "operator": s.pick("In", "NotIn", "Exists", "DoesNotExist"),
		}
		if e["operator"] == "In" || e["operator"] == "NotIn" {
			e["values"] = []string{s.value(), s.value()}
		}
		expressions = append(expressions, e)
	}
	if expressions != nil {
		selector["matchExpressions"] = expressions
	}
	return selector
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
