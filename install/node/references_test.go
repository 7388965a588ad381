package node_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/node"
)

func TestReferences(t *testing.T) {
	b := newBed(t)
	b.cache("one", "calico", "sluice-cni", "sluice-cni")
	b.cache("two", "calico", "istio-cni")
	b.put("results/plain", `{"kind":"cniCacheV1","config":"`+base64.StdEncoding.EncodeToString([]byte(plainBridge))+`"}`)
	for name, junk := range map[string]string{
		"empty": "", "result": `{"cniVersion":"0.4.0","ips":[]}`, "other": `{"kind":"cniCacheV9","config":"e30="}`,
		"config": `{"kind":"cniCacheV1","config":"e30="}`, "number": `{"kind":"cniCacheV1","config":1}`,
	} {
		b.put("results/"+name, junk)
	}
	b.put("results/folder/x", "")
	got, err := node.References([]string{b.path("results"), b.path("absent")})
	if diff := cmp.Diff(map[string]int{"calico": 2, "sluice-cni": 1, "istio-cni": 1, "bridge": 1}, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if _, err := node.References([]string{b.path("results/empty")}); err == nil {
		t.Error("a file was read as a directory")
	}
}

// What is in the cache may come from any runtime.
func FuzzReferences(f *testing.F) {
	f.Add([]byte(`{"kind":"cniCacheV1","config":"` + base64.StdEncoding.EncodeToString([]byte(list("a", "b"))) + `"}`))
	f.Add([]byte(`{"kind":"cniCacheV1","config":null}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "result"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		counts, err := node.References([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		for plugin, n := range counts {
			if plugin == "" || n != 1 {
				t.Fatalf("%q: %d", plugin, n)
			}
		}
	})
}
