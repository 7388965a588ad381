package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/chain"
)

const element = `{"type": "sluice-cni", "exclude_namespaces": ["kube-system"], "plugin_log_level": "info"}`

// lists contains lists in the formats of several installers.
var lists = map[string]string{
	"Calico's": `{
  "name": "k8s-pod-network",
  "cniVersion": "0.3.1",
  "plugins": [
    {
      "type": "calico",
      "log_level": "info",
      "ipam": {
          "type": "calico-ipam"
      },
      "policy": {
          "type": "k8s"
      }
    },
    {
      "type": "portmap",
      "snat": true,
      "capabilities": {"portMappings": true}
    }
  ]
}
`,
	"Cilium's": `
{
  "cniVersion": "0.3.1",
  "name": "cilium",
  "plugins": [
    {
       "type": "cilium-cni",
       "enable-debug": false,
       "log-file": "/var/run/cilium/cilium-cni.log"
    }
  ]
}`,
	"one line":    `{"cniVersion":"1.0.0","name":"e2e","plugins":[{"type":"bridge","isGateway":true},{"type":"portmap"}],"unknown":1.50}`,
	"spaced line": `{ "name": "n", "cniVersion": "1.0.0", "plugins": [ { "type": "a" }, { "type": "b" } ] }`,
	"tabs":        "{\n\t\"name\": \"n\",\n\t\"plugins\": [\n\t\t{\n\t\t\t\"type\": \"a\"\n\t\t}\n\t],\n\t\"cniVersion\": \"0.4.0\"\n}\n",
	"DOS":         "{\r\n  \"name\": \"n\",\r\n  \"plugins\": [\r\n    {\r\n      \"type\": \"a\"\r\n    }\r\n  ]\r\n}\r\n",
	"a line each": "{\n  \"name\": \"n\",\n  \"plugins\": [\n    {\"type\": \"a\"},\n    {\"type\": \"b\"}\n  ]\n}\n",
	"spaces":      "{\"name\":\"n\",\"plugins\":[{\"type\":\"a\"} , {\"type\":\"b\"}   ]\n\n}",
	"twice":       `{"name":"n","plugins":[{"type":"gone"}],"x":"[{\"}]","plugins":[{"type":"a"}]}`,
	"replaced":    `{"plugins":{"a":[1]},"name":"n","plugins":null,"plugins":"[{\"type\":\"b\"}]","plugins":[{"type":"a"}]}`,
	"nested":      `{"x":{"plugins":[1]},"name":"n","plugins":[{"plugins":[{"type":"no"}],"type":"a","note":"}],["}]}`,
	"escaped":     `{"name":"n","plugins":[{"type":"a","bad":"` + "\xff" + `"}]}`,
}

func parse(t *testing.T, text string) *chain.List {
	t.Helper()
	list, err := chain.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return list
}

func insert(t *testing.T, text, element string, inPlaceOf ...string) string {
	t.Helper()
	data, err := parse(t, text).Insert(json.RawMessage(element), inPlaceOf...)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestInsertThenRemoveLeavesNoTrace(t *testing.T) {
	for name, text := range lists {
		t.Run(name, func(t *testing.T) {
			with := insert(t, text, element)
			list := parse(t, with)
			before := parse(t, text).Types()
			if diff := cmp.Diff(append(before, "sluice-cni"), list.Types()); diff != "" {
				t.Errorf("types (-want +got):\n%s", diff)
			}
			if d := list.Inspect("sluice-cni", json.RawMessage(element)); d != chain.None {
				t.Errorf("after insertion, the plugin %s", d)
			}
			if diff := cmp.Diff(text, string(list.Remove("sluice-cni"))); diff != "" {
				t.Errorf("after removal, the text differs from the original (-want +got):\n%s", diff)
			}
			if second := insert(t, with, element); second != with {
				t.Errorf("after a second insertion:\n%s\nwant\n%s", second, with)
			}
			for _, p := range parse(t, text).Plugins {
				if !strings.Contains(with, string(p.Raw)) {
					t.Errorf("the insertion changed the element %s", p.Raw)
				}
			}
		})
	}
}

func TestInsertedElementHasTheFormatOfItsNeighbors(t *testing.T) {
	for name, want := range map[string]string{
		"Calico's": `
    },
    {
      "type": "sluice-cni",
      "exclude_namespaces": [
        "kube-system"
      ],
      "plugin_log_level": "info"
    }
  ]
}
`,
		"Cilium's": `
    },
    {
       "type": "sluice-cni",
       "exclude_namespaces": [
          "kube-system"
       ],
       "plugin_log_level": "info"
    }
  ]
}`,
		"one line":    `},{"type":"sluice-cni","exclude_namespaces":["kube-system"],"plugin_log_level":"info"}],"unknown":1.50}`,
		"spaced line": `}, {"type":"sluice-cni","exclude_namespaces":["kube-system"],"plugin_log_level":"info"} ] }`,
		"a line each": "},\n    {\"type\":\"sluice-cni\",\"exclude_namespaces\":[\"kube-system\"],\"plugin_log_level\":\"info\"}\n  ]\n}\n",
		"tabs":        "},\n\t\t{\n\t\t\t\"type\": \"sluice-cni\",\n\t\t\t\"exclude_namespaces\": [\n\t\t\t\t\"kube-system\"\n\t\t\t],\n\t\t\t\"plugin_log_level\": \"info\"\n\t\t}\n\t],\n\t\"cniVersion\": \"0.4.0\"\n}\n",
		"DOS":         "},\r\n    {\r\n      \"type\": \"sluice-cni\",\r\n      \"exclude_namespaces\": [\r\n        \"kube-system\"\r\n      ],\r\n      \"plugin_log_level\": \"info\"\r\n    }\r\n  ]\r\n}\r\n",
	} {
		if got := insert(t, lists[name], element); !strings.HasSuffix(got, want) {
			t.Errorf("%s:\n%q\ndoes not end in\n%q", name, got, want)
		}
	}
}

func TestInspect(t *testing.T) {
	const sluiceElement, other, changed = element, `{"type":"a"}`, `{"type":"sluice-cni","exclude_namespaces":[]}`
	sorted := `{"exclude_namespaces":["kube-system"],"plugin_log_level":"info","type":"sluice-cni"}`
	for _, row := range []struct {
		plugins []string
		want    chain.Defect
	}{
		{[]string{other}, chain.Absent},
		{[]string{other, sluiceElement}, chain.None},
		{[]string{other, sorted}, chain.None}, // another order of keys
		{[]string{other, changed}, chain.Different},
		{[]string{other, changed, sluiceElement}, chain.Different},
		{[]string{other, sluiceElement, sluiceElement}, chain.Repeated},
		{[]string{sluiceElement, other}, chain.NotLast},
		{[]string{sluiceElement, other, sluiceElement}, chain.Repeated},
	} {
		text := `{"name":"n","plugins":[` + strings.Join(row.plugins, ",") + `]}`
		if got := parse(t, text).Inspect("sluice-cni", json.RawMessage(element)); got != row.want {
			t.Errorf("%s: %q, want %q", text, got, row.want)
		}
		repaired := parse(t, insert(t, text, element))
		if d := repaired.Inspect("sluice-cni", json.RawMessage(element)); d != chain.None {
			t.Errorf("%s: after Insert, the plugin %s", text, d)
		}
	}
}

func TestInsertReplacesOtherPlugins(t *testing.T) {
	text := `{"name":"n","plugins":[{"type":"a"},{"type":"istio-cni"},{"type":"b"},{"type":"istio-cni","x":1}]}`
	want := []string{"a", "b", "sluice-cni"}
	if diff := cmp.Diff(want, parse(t, insert(t, text, element, "istio-cni")).Types()); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

func TestRemoveRemovesAllElementsOfAType(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"n","plugins":[ {"type":"x"}, {"type":"a"} ]}`:                 `{"name":"n","plugins":[ {"type":"a"} ]}`,
		`{"name":"n","plugins":[ {"type":"a"}, {"type":"x"} ]}`:                 `{"name":"n","plugins":[ {"type":"a"} ]}`,
		`{"name":"n","plugins":[{"type":"x"},{"type":"a"},{"type":"x"}]}`:       `{"name":"n","plugins":[{"type":"a"}]}`,
		`{"name":"n","plugins":[{"type":"x"},{"type":"x"},{"type":"x"}],"a":1}`: `{"name":"n","plugins":[],"a":1}`,
		`{"name":"n","plugins":[{"type":"a"}]}`:                                 `{"name":"n","plugins":[{"type":"a"}]}`,
	} {
		if got := string(parse(t, text).Remove("x")); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestInvalidElementsAreNotInserted(t *testing.T) {
	list := parse(t, lists["one line"])
	for _, bad := range []string{``, `[]`, `{}`, `{"type":""}`, `{"type":1}`, `"sluice-cni"`} {
		if _, err := list.Insert(json.RawMessage(bad)); err == nil {
			t.Errorf("%q was inserted", bad)
		}
	}
	_, err := parse(t,
		`{"name":"n","plugins":[{"type":"x"}]}`).Insert(json.RawMessage(element), "x")
	if err == nil || !strings.Contains(err.Error(), "no plugin besides x, sluice-cni: ") {
		t.Errorf("a chain with only the replaced plugin: error %v, want an error that no plugin remains", err)
	}
}

func TestParseRejectsWhatLibcniRejects(t *testing.T) {
	for _, bad := range []string{
		``, `{`, `[]`, `{"plugins":[{"type":"a"}]}`, `{"name":1,"plugins":[{"type":"a"}]}`,
		`{"name":"n","plugins":[]}`,
		`{"name":"n","plugins":[{}]}`, `{"name":"n","plugins":[1]}`, `{"name":"n","plugins":{}}`,
		`{"name":"n","plugins":[{"type":"a"}]} x`,
		`{"name":"n","cniVersion":1,"plugins":[{"type":"a"}]}`,
		`{"name":"n","disableCheck":"maybe","plugins":[{"type":"a"}]}`,
	} {
		_, err := chain.Parse([]byte(bad))
		if _, libcniErr := libcni.NetworkConfFromBytes([]byte(bad)); err == nil || libcniErr == nil {
			t.Errorf("%s: error %v; libcni's error %v; want two errors", bad, err, libcniErr)
		}
	}
	if _, err := chain.Parse([]byte(`{"name":"n"}`)); !errors.Is(err, chain.ErrNoPlugins) {
		t.Errorf("a list without plugins: error %v, want ErrNoPlugins", err)
	}
}

func TestSupportsChains(t *testing.T) {
	for version, want := range map[string]bool{
		"": false, "0.1.0": false, "0.2.0": false, "0.3.0": true, "0.3.1": true, "1.0.0": true,
		"1.1.0": true,
	} {
		text := `{"cniVersion":"` + version + `","name":"n","plugins":[{"type":"a"}]}`
		if got := parse(t, text).SupportsChains(); got != want {
			t.Errorf("version %q: %t, want %t", version, got, want)
		}
	}
}

// runtimeExec simulates a plugin that succeeds.
type runtimeExec struct{ version.PluginDecoder }

func (runtimeExec) ExecPlugin(context.Context, string, []byte, []string) ([]byte, error) {
	return []byte(`{"cniVersion":"1.0.0"}`), nil
}

func (runtimeExec) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

// TestCheckName compares CheckName with an ADD of libcni in a sandbox whose ID has the length of
// the IDs of containerd and CRI-O.
func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"net": "", "k8s-pod-network": "", "9.A_b-": "", strings.Repeat("x", 185): "",
		"":                       `"" is not`,
		"a b":                    `"a b" is not`,
		"..":                     `".." is not`,
		"x/..":                   `"x/.." is not`,
		"-x":                     `"-x" is not`,
		"né":                     `"né" is not`,
		"a\n":                    `"a\n" is not`,
		strings.Repeat("x", 186): `xxx" is not`,
		strings.Repeat("x", 300): `xxx" is not`,
	} {
		text, err := json.Marshal(map[string]any{
			"cniVersion": "1.0.0", "name": name, "plugins": []any{map[string]any{"type": "a"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		conf, err := libcni.NetworkConfFromBytes(text)
		if err != nil {
			t.Fatal(err)
		}
		runtime := libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), new(runtimeExec))
		_, addErr := runtime.AddNetworkList(t.Context(), conf, &libcni.RuntimeConf{
			ContainerID: strings.Repeat("c", 64), IfName: "eth0", NetNS: "/proc/self/ns/net",
		})
		if (addErr != nil) != (want != "") {
			t.Errorf("name %.20q: error of libcni %v, want an error %t", name, addErr, want != "")
		}
		err = parse(t, string(text)).CheckName()
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want+" 1 to 185 ASCII letters")) || err != nil && len(err.Error()) > 300 {
			t.Errorf("name %.20q: error %v, want %q", name, err, want)
		}
	}
}

// TestVersionIsThatOfLibcni compares the version of a list with the version with which libcni calls
// the plugins, for versions that libcni knows, ignores and refuses.
func TestVersionIsThatOfLibcni(t *testing.T) {
	for _, row := range []struct{ fields, version, old, err string }{
		{`"cniVersion":"1.1.0"`, "1.1.0", "1.1.0", ""},
		{`"cniVersion":"1.2.0"`, "1.2.0", "1.2.0", ""}, // libcni does not refuse it; the plugin does
		{`"cniVersion":"1.0.0","cniVersions":["1.1.0","1.2.0"]`, "1.1.0", "1.0.0", ""},
		{`"cniVersion":"1.2.0","cniVersions":["0.4.0","1.0.0"]`, "1.0.0", "1.2.0", ""},
		{`"cniVersion":"1.2.0","cniVersions":["1.3.0"]`, "1.2.0", "1.2.0", ""},
		{`"cniVersion":"1.1.0","cniVersions":["0.4.0"]`, "1.1.0", "1.1.0", ""},
		{`"cniVersions":["1.0.0"]`, "1.0.0", "", ""},
		{`"cniVersions":["1.2.0"]`, "", "", ""},
		{`"cniVersions":[]`, "", "", ""},
		{`"cniVersion":"0.4.0","cniVersion":"1.0.0"`, "1.0.0", "1.0.0", ""},
		{`"cniVersion":1`, "", "", "invalid cniVersion type"},
		{`"cniVersions":"1.0.0"`, "", "", "invalid type for cniVersions"},
		{`"cniVersions":[1]`, "", "", "invalid type for cniVersions index 0"},
		{`"cniVersions":["x"]`, "", "", "invalid cniVersions entry x"},
	} {
		text := `{"name":"n",` + row.fields + `,"plugins":[{"type":"a"}]}`
		list, err := chain.Parse([]byte(text))
		conf, libcniErr := libcni.NetworkConfFromBytes([]byte(text))
		if row.err != "" {
			if err == nil || libcniErr == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: error %v, in libcni %v; want %q", row.fields, err, libcniErr, row.err)
			}
			continue
		}
		if err != nil || libcniErr != nil {
			t.Errorf("%s: error %v, in libcni %v; want none", row.fields, err, libcniErr)
			continue
		}
		if list.CNIVersion != row.version || list.CNIVersion != conf.CNIVersion ||
			list.OldCNIVersion != row.old {
			t.Errorf("%s: version %q, old version %q, in libcni %q; want %q, %q", row.fields, list.CNIVersion,
				list.OldCNIVersion, conf.CNIVersion, row.version, row.old)
		}
	}
}
