package plugin_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// checkUniqueKeys fails the test if an object has a duplicate key. Most decoders would keep only
// one of the values.
func checkUniqueKeys(t testing.TB, object string) {
	t.Helper()
	seen := map[string]bool{}
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		name, isText := key.(string)
		if err != nil || !isText || d.Decode(&value) != nil {
			t.Fatalf("%q is not an object: %v", object, err)
		}
		if seen[name] {
			t.Errorf("duplicate key %s: %s", name, object)
		}
		seen[name] = true
	}
}

func TestNotesOfOneKindAreInOneField(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	for i := range env.source.pod.Spec.Containers {
		for _, name := range []string{"ISTIO_META_DNS_CAPTURE", "ISTIO_DUAL_STACK"} {
			c := &env.source.pod.Spec.Containers[i]
			c.Env = append(c.Env, decide.EnvVar{Name: name, ValueFrom: &decide.ValueSource{}})
		}
	}
	c := newCall(t, ns)
	c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.5/24"},{"address":"fd00::5/64"}]}`
	c.stdin = c.configuration()
	env.add(t, c)
	line := env.logLines(t)[0]
	text, _ := line["variable-unread"].(string)
	if line["ipv6-uncaptured"] == nil {
		t.Errorf("a note of another kind is missing: %v", line)
	}
	for _, name := range []string{"ISTIO_META_DNS_CAPTURE", "ISTIO_DUAL_STACK"} {
		if !strings.Contains(text, name) {
			t.Errorf("the field does not contain %s: %s", name, text)
		}
	}
}

// TestErrorsAboutSeveralOtherRecordsAreInOneField checks that the errors about the records of a
// pod's other attachments are in one field.
func TestErrorsAboutSeveralOtherRecordsAreInOneField(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	env.add(t, c)
	others := []string{"anInterfaceWithALongName1", "anInterfaceWithALongName2"}
	for _, name := range others {
		other := c.record(t)
		other.IfName = name // no interface can have this name
		data, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.runDir, "attachments", c.id+":"+name+".json"), data,
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	env.stderr.Reset()
	env.add(t, c)
	text, _ := env.logLines(t)[0]["other_records_error"].(string)
	for _, name := range others {
		if !strings.Contains(text, name) {
			t.Errorf("the field does not contain %s: %s", name, text)
		}
	}
}
