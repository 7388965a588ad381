package scale

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// daemonSet returns the chart's DaemonSet as an API server stores it: with the managedFields of
// Helm and the controller, and with a status. updated is the number of updated pods.
func daemonSet(t *testing.T, nodes, updated int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "install", "manifests", "default.yaml"))
	must(t, err)
	var object map[string]any
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: DaemonSet\n") {
			must(t, yaml.Unmarshal([]byte(document), &object))
		}
	}
	if object == nil {
		t.Fatal("no DaemonSet in the manifests")
	}
	status := map[string]any{
		"currentNumberScheduled": nodes, "desiredNumberScheduled": nodes, "numberMisscheduled": 0,
		"numberReady": nodes, "numberAvailable": nodes, "observedGeneration": 2,
		"updatedNumberScheduled": updated,
	}
	metadata := object["metadata"].(map[string]any)
	metadata["managedFields"] = []any{
		manager("helm", "", map[string]any{"metadata": metadata, "spec": object["spec"]}),
		manager("kube-controller-manager", "status", map[string]any{"status": status}),
	}
	object["status"] = status
	encoded, err := json.Marshal(object)
	must(t, err)
	return string(encoded)
}

// manager returns an entry of managedFields.
func manager(name, subresource string, object map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": owned(object),
		"manager": name, "operation": "Update", "subresource": subresource,
		"time": "2026-10-12T09:14:31Z",
	}
}

// owned returns the fields of a value in the format FieldsV1.
func owned(value any) map[string]any {
	fields := map[string]any{}
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			fields["f:"+key] = owned(inner)
		}
	case []any:
		for _, inner := range v {
			item, _ := inner.(map[string]any)
			if name, ok := item["name"].(string); ok {
				fields[`k:{"name":"`+name+`"}`] = owned(inner)
			}
		}
	}
	return fields
}
