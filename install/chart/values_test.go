package chart_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/install/settings"
)

// deploymentKeys contains the keys of values.yaml that affect objects and set no setting of the
// agent.
const deploymentKeys = `platform profile compatibilityVersion hub tag image digest variant pullPolicy provider repair.hub repair.tag
	mountNetns dacOverride uninstallHook.enabled uninstallHook.timeoutSeconds uninstallHook.tolerations affinity
	tolerations priorityClassName updateStrategy.type updateStrategy.rollingUpdate.maxUnavailable terminationGracePeriodSeconds
	resources.requests.cpu resources.requests.memory resources.limits.memory resourceQuotas.enabled resourceQuotas.pods
	daemonSetLabels podLabels podAnnotations env seccompProfile seLinuxOptions useAppArmorAnnotation podMonitor.enabled
	podMonitor.interval podMonitor.labels prometheusRule.enabled prometheusRule.labels dashboard.enabled
	dashboard.labels.grafana_dashboard networkPolicy.apiServerPorts networkPolicy.apiServerCIDRs revision ownerName
	global.platform global.hub global.tag global.variant global.imagePullPolicy global.imagePullSecrets global.logging.level
	global.networkPolicy.enabled global.nativeNftables global.resourceScope`

// omittedKeys contains the keys of the schema that values.yaml omits: keys of Kubernetes objects,
// and keys of Istio's charts, most of them without effect.
const omittedKeys = `logLevel privileged psp_cluster_role rollingMaxUnavailable taint repair.createEvents
	ambient.redirectMode ambient.configDir ambient.reconcileIptablesOnStartup ambient.shareHostNetworkNamespace
	ambient.enableAmbientDetectionRetry seccompProfile.type seccompProfile.localhostProfile seLinuxOptions.user
	seLinuxOptions.role seLinuxOptions.type seLinuxOptions.level cni _internal_defaults_do_not_set enabled global.profile global.defaultResources pilot ztunnel meshConfig gateways base istiodRemote
	telemetry sidecarInjectorWebhook experimental istio_cni revisionTags defaultRevision trustedZtunnelNamespace
	trustedZtunnelName istiod gateway`

// leaves returns the values that are not objects, or are empty objects, by key.
func leaves(values map[string]any) map[string]any {
	all := map[string]any{}
	for key, value := range values {
		inner, isObject := value.(map[string]any)
		if !isObject || len(inner) == 0 {
			all[key] = value
			continue
		}
		for below, value := range leaves(inner) {
			all[key+"."+below] = value
		}
	}
	return all
}

func load(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatal(file, err)
	}
}

func defaults(t *testing.T) map[string]any {
	t.Helper()
	var values map[string]any
	load(t, "values.yaml", &values)
	return leaves(values)
}

// text formats a value as in the agent's environment variable.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case []any:
		if len(value) == 0 {
			return ""
		}
		words := make([]string, len(value))
		for i, word := range value {
			words[i] = fmt.Sprint(word)
		}
		return strings.Join(words, ",")
	}
	return fmt.Sprint(value)
}

// TestValuesAreTheSettings checks that every key belongs to a setting or to the deployment, and
// that every setting with a key is in values.yaml.
func TestValuesAreTheSettings(t *testing.T) {
	values := defaults(t)
	want := strings.Fields(deploymentKeys)
	for _, s := range settings.All() {
		if s.Helm != "" {
			want = append(want, s.Helm)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(values))); diff != "" {
		t.Errorf("values.yaml has other keys than the settings and the deployment (-want +got):\n%s", diff)
	}
	var platforms map[string]map[string]any
	load(t, "files/platforms.yaml", &platforms)
	for _, s := range settings.All() {
		if s.Helm == "" {
			continue
		}
		got := text(values[s.Helm])
		switch {
		case got == "" && platforms["default"][s.Helm] != nil:
			got = text(platforms["default"][s.Helm])
		case s.Helm == "logging.level":
			got = text(values["global.logging.level"])
		}
		want := s.Default
		if s.Chart != "" {
			want = s.Chart
		}
		// Empty values are not rendered, and mean the agent's default.
		if got != want && (got != "" || s.Chart != "") {
			t.Errorf("%s is %q in values.yaml, want %q, the default of %s", s.Helm, got, want, s.Env)
		}
	}
}

// schemaOf returns the schema of a key, or nil.
func schemaOf(root *jsonschema.Schema, key string) *jsonschema.Schema {
	for name := range strings.SplitSeq(key, ".") {
		if root = root.Properties[name]; root == nil {
			return nil
		}
	}
	return root
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root jsonschema.Schema
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	return &root
}

// withKeys replaces the names of variables in the help of a setting with the keys that set them.
func withKeys(help string) string {
	all := settings.All()
	// A name that begins with another name comes first.
	slices.SortFunc(all, func(a, b settings.Setting) int { return strings.Compare(b.Env, a.Env) })
	for _, s := range all {
		if s.Helm != "" {
			help = strings.ReplaceAll(help, s.Env, s.Helm)
		}
	}
	return help
}

// TestSchemaDescribesEveryProperty checks that every property has a description. The description of
// a setting's property must be the help of the setting, with keys instead of variables.
func TestSchemaDescribesEveryProperty(t *testing.T) {
	root := schema(t)
	values := slices.Sorted(maps.Keys(defaults(t)))
	var walk func(s *jsonschema.Schema, path string)
	walk = func(s *jsonschema.Schema, path string) {
		for name, property := range s.Properties {
			if property.Description == "" {
				t.Errorf("%s%s has no description", path, name)
			}
			if !slices.Contains(strings.Fields(omittedKeys), path+name) &&
				!slices.ContainsFunc(values, func(key string) bool {
					return strings.HasPrefix(key+".", path+name+".")
				}) {
				t.Errorf("%s%s is in the schema and not in values.yaml", path, name)
			}
			walk(property, path+name+".")
		}
	}
	walk(root, "")
	for _, s := range settings.All() {
		if s.Helm == "" {
			continue
		}
		property := schemaOf(root, s.Helm)
		if property == nil {
			t.Errorf("%s is a key of a setting and not in the schema", s.Helm)
			continue
		}
		if want := withKeys(s.Help); property.Description != want {
			t.Errorf("%s: the description is %q, want %q", s.Helm, property.Description, want)
		}
	}
	for _, key := range values {
		// A key below an object without listed properties, such as labels, needs no schema.
		for outer := key; schemaOf(root, outer) == nil; {
			cut := strings.LastIndexByte(outer, '.')
			if cut < 0 {
				t.Errorf("%s is in values.yaml and not in the schema", key)
				break
			}
			if outer = outer[:cut]; schemaOf(root, outer) != nil &&
				schemaOf(root, outer).Properties != nil {
				t.Errorf("%s is in values.yaml and not in the schema", key)
				break
			}
		}
	}
}

// parseFor converts a text to a value of the type that a schema allows.
func parseFor(s *jsonschema.Schema, text string) any {
	var value any
	switch {
	case (s.Type == "array" || slices.Contains(s.Types, "array")) && strings.HasPrefix(text, "["),
		s.Type == "integer", s.Type == "boolean", slices.Contains(s.Types, "boolean"):
		if json.Unmarshal([]byte(text), &value) == nil {
			return value
		}
	case s.Type == "array":
		list := []any{}
		for word := range strings.SplitSeq(text, ",") {
			list = append(list, word)
		}
		return list
	}
	return text
}

// unusualValues contains values that most settings do not allow. The schema or a pattern must reject
// each value that the agent rejects.
var unusualValues = []string{
	"none of the words", "-1", "65536", "a/b", "relative/path", "10-calico.yaml", "Upper_Case",
	"nat-last", "10", "yes", "{}",
	"cni.istio.io/not-ready:NoSchedule",
}

// TestSchemaAndPatternsAllowWhatTheAgentAllows compares the values that the agent allows with those
// that the schema and the patterns of the templates allow. The module e2e/deploy tests durations.
func TestSchemaAndPatternsAllowWhatTheAgentAllows(t *testing.T) {
	root := schema(t)
	for _, s := range settings.All() {
		property := schemaOf(root, s.Helm)
		if s.Helm == "" || property == nil || strings.HasPrefix(s.Kind.Want, "a duration ") {
			continue
		}
		resolved, err := property.Resolve(nil)
		if err != nil {
			t.Fatal(s.Helm, err)
		}
		pattern := regexp.MustCompile(patterns[s.Kind.Want])
		accepts := func(text string) bool {
			value := parseFor(property, text)
			elements, isList := value.([]any)
			if !isList {
				elements = []any{value}
			}
			return resolved.Validate(value) == nil && !slices.ContainsFunc(elements, func(element any) bool {
				return !pattern.MatchString(fmt.Sprint(element))
			})
		}
		words := s.Kind.Words
		if s.Helm == "logging.level" {
			words = nil // a list of scope:level is allowed too
		}
		for _, word := range slices.Concat(words, []string{s.Example, s.Default, s.Chart}) {
			if word != "" && !accepts(word) {
				t.Errorf("%s: the chart rejects %q, which %s allows", s.Helm, word, s.Env)
			}
		}
		list := property.Enum
		if property.Items != nil {
			list = property.Items.Enum
		}
		for _, word := range list {
			if !s.Kind.Allows(fmt.Sprint(word)) {
				t.Errorf("%s: the schema allows %q, which %s rejects: want %s", s.Helm, word, s.Env,
					s.Kind.Want)
			}
		}
		for _, text := range unusualValues {
			if !s.Kind.Allows(text) && s.Helm != "logging.level" && accepts(text) {
				t.Errorf("%s: the chart allows %q, which %s rejects: want %s", s.Helm, text, s.Env,
					s.Kind.Want)
			}
		}
	}
}

// TestRenderedVariablesAreSettings checks that the ConfigMap and the DaemonSet of each rendered
// file set only variables of settings, and set them to allowed values.
func TestRenderedVariablesAreSettings(t *testing.T) {
	files, err := filepath.Glob("../manifests/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("rendered files %q, error %v; want at least two files", files, err)
	}
	for _, file := range files {
		rendered := variables(t, file)
		for name, value := range rendered {
			s, known := settings.Find(name)
			switch {
			case name == "GOMEMLIMIT" || name == "GOMAXPROCS": // of the Go runtime
			case !known:
				t.Errorf("%s sets %s, which is not a setting", file, name)
			case value != "" && !s.Kind.Allows(value):
				t.Errorf("%s sets %s to %q: want %s", file, name, value, s.Kind.Want)
			}
		}
		for _, s := range settings.All() {
			value, set := rendered[s.Env]
			switch {
			case s.Required && !set:
				t.Errorf("%s does not set %s", file, s.Env)
			case !set && s.Chart != "", !set && s.Helm != "" && s.Default != "" &&
				s.Env != "ISTIO_OWNED_CNI_CONFIG_FILENAME":
				t.Errorf("%s does not set %s, whose key is %s", file, s.Env, s.Helm)
			case !set, s.Required, s.Fixed, filepath.Base(file) != "default.yaml":
			case s.Chart != "" && value != s.Chart, s.Chart == "" && value != s.Default:
				t.Errorf("%s sets %s to %q; its default is %q", file, s.Env, value, s.Default)
			}
		}
	}
}

// variables returns the variables that the ConfigMap and the DaemonSet in a file set. A variable
// from a field of the pod is empty.
func variables(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var object struct {
			Kind string
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Env []struct{ Name, Value string }
						}
					}
				}
			}
		}
		if !strings.Contains(document, "\nkind: ConfigMap\n") &&
			!strings.Contains(document, "\nkind: DaemonSet\n") {
			continue
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(file, err)
		}
		maps.Copy(all, object.Data)
		for _, c := range object.Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				all[e.Name] = e.Value
			}
		}
	}
	return all
}
