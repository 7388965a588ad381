package podfile_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
)

func TestReadTakesYAMLAndJSON(t *testing.T) {
	const metadata = "kind: Pod\nmetadata:\n  name: web\n  namespace: shop\n"
	const spec = "spec:\n  hostNetwork: true\n"
	for name, text := range map[string]string{
		"YAML": metadata + spec,
		"JSON": `{"kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"hostNetwork":true}}`,
		"YAML between document markers": "# a comment\n\n---\n" + metadata + spec +
			"---\n# the end\n",
		"dashes in a text are not a document marker": metadata +
			"  annotations:\n    a: |\n      ---\n      b\n" + spec,
		"an alias": "kind: &kind Pod\nother: *kind\n" + strings.TrimPrefix(metadata, "kind: Pod\n") + spec,
		"a document that begins on the line of its marker": "--- {kind: Pod, metadata: {name: web, namespace: shop}, spec: {hostNetwork: true}}\n",
	} {
		w, err := podfile.Read(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m := w.Pod.Metadata; m.Name != "web" || m.Namespace != "shop" || !w.Pod.Spec.HostNetwork {
			t.Errorf("%s: %+v, want the pod shop/web in the host's network", name, w.Pod)
		}
	}
}

func TestReadSetsTheDefaultsOfTheAPIServer(t *testing.T) {
	w, err := podfile.Read(strings.NewReader("kind: Pod\nmetadata:\n  generateName: web-\n"))
	if err != nil || w.Pod.Metadata.Namespace != "default" || w.Pod.Metadata.Name != "web-" {
		t.Errorf("%+v, error %v; want the pod web- in the namespace default", w, err)
	}
}

func TestTheLargestFileIsRead(t *testing.T) {
	text := "kind: Pod\nmetadata: {name: x}\n#"
	if _, err := podfile.Read(strings.NewReader(text + strings.Repeat(" ",
		4<<20-len(text)))); err != nil {
		t.Error(err)
	}
}

func TestEveryFieldOfAnInjectedPodIsRead(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "testdata", "openshift.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := podfile.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	pod := w.Pod
	validation, proxy := pod.Spec.InitContainers[0], pod.Spec.InitContainers[1]
	if pod.Metadata.UID == "" || pod.Metadata.Labels["app"] != "billing" ||
		pod.Metadata.Annotations["openshift.io/scc"] == "" {
		t.Errorf("metadata %+v, want a UID, labels and annotations", pod.Metadata)
	}
	if validation.Name != "istio-validation" || len(validation.Args) < 18 ||
		validation.Args[10] != "*" {
		t.Errorf("container %+v, want istio-validation with its arguments", validation)
	}
	const id = 1000669999
	if c := proxy.SecurityContext; proxy.RestartPolicy != "Always" || *c.RunAsUser != id ||
		*c.RunAsGroup != id {
		t.Errorf("container %+v, want a native sidecar with the user and group %d", proxy, id)
	}
	if v := proxy.Env[0]; v.Name != "PILOT_CERT_PROVIDER" || v.Value != "istiod" ||
		v.ValueFrom != nil {
		t.Errorf("variable %+v, want PILOT_CERT_PROVIDER=istiod", v)
	}
	if v := proxy.Env[2]; v.Name != "POD_NAME" || v.Value != "" || v.ValueFrom == nil {
		t.Errorf("variable %+v, want POD_NAME from another source", v)
	}
	if pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.RunAsUser != nil {
		t.Errorf("security context of the pod: %+v, want one without a user", pod.Spec.SecurityContext)
	}
}

func TestInputThatIsNotAPodIsRejected(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty input", "", "no object: want a pod"},
		{"another kind", "kind: Service\nmetadata: {name: web}\n", `kind "Service": want a Pod, or a Deployment`},
		{"a list", "kind: PodList\nitems: []\n", `kind "PodList"`},
		{"an empty list", "kind: List\nitems: []\n", "no object: want a pod"},
		{
			"a list of lists", "kind: List\nitems: [{kind: List, items: [{kind: Pod}]}]\n",
			`kind "List"`,
		},
		{"a list of values that are not objects", "kind: List\nitems: [1]\n", "no pod in YAML or JSON: "},
		{"invalid YAML", "kind: [", "no pod in YAML or JSON: "},
		{
			"fields of another type",
			"kind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: maybe}\n",
			"no pod in YAML or JSON: ",
		},
		{"no name", "kind: Pod\n", "the pod has no name"},
		{"too many bytes", strings.Repeat(" ", 4<<20+1), "more than 4194304 bytes"},
		{
			"aliases of a long text",
			"kind: Pod\nmetadata: {name: a}\nx: [&a " + strings.Repeat("<", 10_000) +
				strings.Repeat(", *a", 1_000) + "]\n",
			"more than 4194304 bytes with expanded aliases",
		},
	} {
		w, err := podfile.Read(strings.NewReader(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, error %v, want a line with %q", test.name, w, err, test.want)
		}
	}
	broken := errors.New("broken")
	if _, err := podfile.Read(io.MultiReader(strings.NewReader("kind: Pod"),
		iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v, want %v", err, broken)
	}
}

// TestPodAndItsNamespace reads a pod and its namespace from one file, in any order and in the forms
// that kubectl prints.
func TestPodAndItsNamespace(t *testing.T) {
	const pod, namespace = "kind: Pod\nmetadata: {name: web, namespace: shop}\n", "kind: Namespace\nmetadata: {name: shop, labels: {mesh: on1}}\n"
	for _, row := range []struct{ name, text, label, err string }{
		{"only the pod", pod, "", ""},
		{"the pod first", pod + "---\n" + namespace, "on1", ""},
		{"the namespace first", namespace + "---\n" + pod, "on1", ""},
		{
			"a list",
			"kind: List\nitems:\n- kind: Pod\n  metadata: {name: web, namespace: shop}\n" +
				"- kind: Namespace\n  metadata: {name: shop, labels: {mesh: on1}}\n", "on1", "",
		},
		{
			"documents that begin on the lines of their markers",
			"--- {kind: Pod, metadata: {name: web, namespace: shop}}\n" +
				"--- {kind: Namespace, metadata: {name: shop, labels: {mesh: on1}}}\n", "on1", "",
		},
		{
			"a list with only the pod",
			`{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"web","namespace":"shop"}}]}`,
			"", "",
		},
		{
			"a list of the API server",
			`{"kind":"PodList","items":[{"metadata":{"name":"web","namespace":"shop"}}]}`, "", "",
		},
		{
			"another namespace", pod + "---\nkind: Namespace\nmetadata: {name: other}\n", "",
			`the pod is in namespace "shop", but the file contains namespace "other"`,
		},
		{
			"two other namespaces",
			pod + "---\nkind: Namespace\nmetadata: {name: a}\n" +
				"---\nkind: Namespace\nmetadata: {name: b}\n", "",
			`the file contains namespace "a", namespace "b"`,
		},
		{
			"its namespace and another one",
			pod + "---\nkind: Namespace\nmetadata: {name: other}\n---\n" + namespace, "on1", "",
		},
		{"only the namespace", namespace, "", `kind "Namespace": want a Pod, or a Deployment`},
		{
			"two namespaces and no pod", namespace + "---\n" + namespace, "",
			`kind "Namespace": want a Pod`,
		},
		{
			"a namespace with fields of another type",
			pod + "---\nkind: Namespace\nmetadata: {name: shop, labels: [a]}\n", "",
			"no namespace in YAML or JSON: ",
		},
		{"empty input", "", "", "no object: want a pod"},
	} {
		w, err := podfile.Read(strings.NewReader(row.text))
		if row.err != "" {
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: %v, want %q", row.name, err, row.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		n := w.Namespace
		if w.Pod.Metadata.Name != "web" || w.IsTemplate || w.Source != "Pod shop/web" ||
			len(w.Ignored) > 0 ||
			(n != nil) != (row.label != "") || n != nil && n.Metadata.Labels["mesh"] != row.label {
			t.Errorf("%s: %+v, want the pod shop/web and the label %q of its namespace", row.name, w,
				row.label)
		}
	}
}

func TestWorkloadIsReadAsItsTemplate(t *testing.T) {
	const template = "{metadata: {labels: {app: web}, annotations: {a: b}}, spec: {containers: [{name: web}]}}"
	for _, kind := range []string{
		"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job",
		"CronJob",
	} {
		spec := "{template: " + template + "}"
		if kind == "CronJob" {
			spec = "{jobTemplate: {spec: " + spec + "}}"
		}
		text := "kind: Service\nmetadata: {name: web}\n---\nkind: " + kind +
			"\nmetadata: {name: web, namespace: shop}\nspec: " + spec +
			"\n---\nkind: Pod\nmetadata: {generateName: web-}\n"
		w, err := podfile.Read(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		m := w.Pod.Metadata
		if !w.IsTemplate || w.Source != kind+" shop/web" || m.Namespace != "shop" ||
			m.Name != "web" || m.Labels["app"] != "web" ||
			m.Annotations["a"] != "b" || len(w.Pod.Spec.Containers) != 1 ||
			!slices.Equal(w.Ignored, []string{"Service web", "Pod web-"}) {
			t.Errorf("%s: %+v, pod %+v; want the template with the name of the workload", kind, w, w.Pod)
		}
	}
	for text, want := range map[string]string{
		"kind: Deployment\nmetadata: {name: web}\n":                 "Deployment web: there is no template of a pod",
		"kind: Deployment\nspec: {template: {}}\n":                  "the Deployment has no name",
		"kind: Job\nmetadata: {name: web}\nspec: {template: [1]}\n": "no Job in YAML or JSON: ",
		"kind: Service\nmetadata: {name: web}\n---\nkind: Secret\n": `kind "Service": want a Pod, or a Deployment`,
	} {
		if w, err := podfile.Read(strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, error %v, want %q", text, w, err, want)
		}
	}
}

// FuzzRead reads arbitrary files: a pod has a name and a namespace, and can be decided about and
// read again.
func FuzzRead(f *testing.F) {
	f.Add("kind: Pod\nmetadata:\n  name: x\n  annotations: {a: 'b'}\nspec:\n  containers:\n  - name: y\n    args: [\"-p\", \"1\"]\n")
	f.Add(`{"kind":"Pod","metadata":{"generateName":"x-"},"spec":{"securityContext":{"runAsUser":0}}}`)
	f.Add("kind: Pod\nmetadata: {name: &a [*a]}\n")
	f.Add("---\n---\nkind: Pod\nmetadata: {name: x}")
	f.Add("kind: CronJob\nmetadata: {name: x}\nspec: {jobTemplate: {spec: {template: {spec: {}}}}}")
	f.Add("kind: List\nitems: [{kind: Namespace, metadata: {name: a}}, {kind: Pod, metadata: {name: x, namespace: a}}]")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := podfile.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		pod := w.Pod
		if pod == nil || pod.Metadata.Name == "" || pod.Metadata.Namespace == "" {
			t.Fatalf("the pod, its name or its namespace is missing: %+v", w)
		}
		if w.Namespace != nil && w.Namespace.Metadata.Name != pod.Metadata.Namespace {
			t.Errorf("the pod is in namespace %q, but Read returns namespace %q", pod.Metadata.Namespace,
				w.Namespace.Metadata.Name)
		}
		in := decide.Input{
			Attachment: decide.Attachment{
				Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name,
			},
			Pod: pod,
		}
		decide.Decide(in, &decide.Settings{})
		data, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := podfile.Read(strings.NewReader(`{"kind":"Pod",` +
			string(data[1:]))); err != nil {
			t.Errorf("the result cannot be read again as JSON: %v", err)
		}
	})
}
