package deploy_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/deploy"
	"github.com/sluice-mesh/sluice/install/settings"
)

// absentIfNull contains the keys whose value is absent from the objects if it is null: fields that
// Kubernetes defines, and labels.
var absentIfNull = []string{
	"dashboard.labels.grafana_dashboard", "resources", "resources.limits", "resources.limits.memory",
	"resources.requests", "resources.requests.cpu", "resources.requests.memory", "updateStrategy",
	"updateStrategy.rollingUpdate", "updateStrategy.rollingUpdate.maxUnavailable",
	"updateStrategy.type",
}

// A null value means the default, like a missing one. Helm deletes a key whose value is null, and
// with helm upgrade --reuse-values, keys that are new in this version of the chart are missing. The
// agent accepts the result.
func TestNullMeansTheDefault(t *testing.T) {
	t.Parallel()
	keys := keysOf(parse(t, readme(t, filepath.Join(deploy.ChartDir, "values.yaml"))), nil)
	if len(keys) < 100 {
		t.Errorf("%d keys, want at least 100", len(keys))
	}
	// These values enable optional objects.
	const values = `{profile: ambient, dashboard: {enabled: true}, podMonitor: {enabled: true},
		prometheusRule: {enabled: true}, resourceQuotas: {enabled: true},
		global: {networkPolicy: {enabled: true}, imagePullSecrets: [a]}}`
	want, err := deploy.Render(parse(t, values), deploy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range keys {
		key := strings.Join(path, ".")
		withNull, withNullUnderCNI := parse(t, values), parse(t, values)
		if !setNull(withNull, path) {
			continue // the values contain another value of the key
		}
		setNull(withNullUnderCNI, append([]string{"cni"}, path...))
		got, err := deploy.Render(withNull, deploy.Options{})
		if err != nil {
			t.Errorf("%s=null: %v", key, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" && !slices.Contains(absentIfNull, key) {
			t.Errorf("%s=null differs from the default (-default +null)\n%s", key, diff)
		}
		environment := decodeAll(t, got.Objects).environment(t)
		if _, err := settings.Read(func(name string) (string, bool) {
			v, set := environment[name]
			return v, set
		}); err != nil {
			t.Errorf("%s=null: %v", key, err)
		}
		// Helm keeps null under cni, which has no default, and the schema rejects most of it.
		got, err = deploy.Render(withNullUnderCNI, deploy.Options{})
		schemaPath := "/cni/" + strings.ReplaceAll(key, ".", "/")
		if err != nil && !strings.Contains(err.Error(), schemaPath) {
			t.Errorf("cni.%s=null: error %v, want %s in it", key, err, schemaPath)
		}
		if diff := cmp.Diff(want, got); err == nil && diff != "" && !slices.Contains(absentIfNull, key) {
			t.Errorf("cni.%s=null differs from the default (-default +null)\n%s", key, diff)
		}
	}
}

// keysOf returns the paths of all values, of objects and of their fields, sorted.
func keysOf(values map[string]any, outer []string) [][]string {
	var keys [][]string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		path := append(slices.Clone(outer), name)
		keys = append(keys, path)
		if fields, isObject := values[name].(map[string]any); isObject {
			keys = append(keys, keysOf(fields, path)...)
		}
	}
	return keys
}

// setNull sets the value at a path to null, and reports whether the path had no value before.
func setNull(values map[string]any, path []string) bool {
	inner, isSet := values[path[0]]
	if len(path) == 1 {
		values[path[0]] = nil
		return !isSet
	}
	object, isObject := inner.(map[string]any)
	if !isSet {
		object, isObject = map[string]any{}, true
		values[path[0]] = object
	}
	return isObject && setNull(object, path[1:])
}
