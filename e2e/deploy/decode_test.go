package deploy_test

import (
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/deploy"
)

// strict rejects unknown and duplicate fields.
var strict = serializer.NewCodecFactory(scheme.Scheme,
	serializer.EnableStrict).UniversalDeserializer()

// customKinds contains kinds of custom resources.
var customKinds = map[string]bool{
	"SecurityContextConstraints": true, "NetworkAttachmentDefinition": true, "PodMonitor": true,
	"PrometheusRule": true,
}

// decode decodes an object as strictly as an API server with strict field validation.
func decode(t *testing.T, text string) runtime.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if customKinds[u.GetKind()] {
		return u
	}
	o, _, err := strict.Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return o
}

// objects contains the objects of a rendering by kind/name.
type objects map[string]runtime.Object

// render renders the chart with values in YAML, and decodes all objects.
func render(t *testing.T, values string, o deploy.Options) (deployed, hooks objects) {
	t.Helper()
	r, err := deploy.Render(parse(t, values), o)
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	return decodeAll(t, r.Objects), decodeAll(t, r.Hooks)
}

func parse(t *testing.T, values string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &v); err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	return v
}

func decodeAll(t *testing.T, texts []string) objects {
	t.Helper()
	all := objects{}
	for _, text := range texts {
		o := decode(t, text)
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		key := o.GetObjectKind().GroupVersionKind().Kind + "/" + m.GetName()
		if all[key] != nil {
			t.Errorf("duplicate object %s", key)
		}
		all[key] = o
	}
	return all
}

func (o objects) agent(t *testing.T) *apps.DaemonSet {
	t.Helper()
	ds, ok := o["DaemonSet/sluice-node"].(*apps.DaemonSet)
	if !ok {
		t.Fatal("no DaemonSet sluice-node")
	}
	return ds
}

// environment returns the agent's environment. Values from the downward API are "from the pod".
func (o objects) environment(t *testing.T) map[string]string {
	t.Helper()
	environment := map[string]string{}
	c := o.agent(t).Spec.Template.Spec.Containers[0]
	for _, from := range c.EnvFrom {
		config, ok := o["ConfigMap/"+from.ConfigMapRef.Name].(*core.ConfigMap)
		if !ok {
			t.Fatalf("no ConfigMap %s", from.ConfigMapRef.Name)
		}
		for name, value := range config.Data {
			environment[name] = value
		}
	}
	for _, e := range c.Env {
		environment[e.Name] = e.Value
		if e.ValueFrom != nil {
			environment[e.Name] = "from the pod"
		}
	}
	return environment
}

// permissions returns the rules of the agent's roles; see [rbactest.Configuration].
func (o objects) permissions() []string {
	var lines []string
	for _, key := range []string{"ClusterRole/sluice-node", "Role/sluice-node"} {
		var rules []rbac.PolicyRule
		switch role := o[key].(type) {
		case *rbac.ClusterRole:
			rules = role.Rules
		case *rbac.Role:
			rules = role.Rules
		}
		for _, r := range rules {
			line := strings.Join(r.Resources, ",")
			if len(r.ResourceNames) > 0 {
				line += " (" + strings.Join(r.ResourceNames, ",") + ")"
			}
			lines = append(lines, line+": "+strings.Join(r.Verbs, " "))
		}
	}
	return lines
}
