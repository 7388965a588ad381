package deploy_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/deploy"
)

var update = flag.Bool("update", false, "update install/manifests")

const manifestDir = "../../install/manifests"

// usesDefault contains the platforms whose manifest is default.yaml.
var usesDefault = map[string]bool{"eks": true, "aks": true, "iks": true, "talos": true}

// manifest returns the text of a manifest, rendered with the values.
func manifest(t *testing.T, values map[string]any) string {
	t.Helper()
	r, err := deploy.Render(values, deploy.Options{Service: "kubectl"})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintln(&text, "# Rendered from install/chart by make manifests.")
	for _, o := range r.Objects {
		fmt.Fprintf(&text, "---\n%s\n", strings.TrimSpace(o))
	}
	return text.String()
}

func TestManifestsAreUpToDate(t *testing.T) {
	standard := manifest(t, nil)
	files := map[string]string{
		"default.yaml": standard, "ambient.yaml": manifest(t, map[string]any{"profile": "ambient"}),
	}
	for _, platform := range platforms {
		m := manifest(t, map[string]any{"platform": platform})
		if same := m == standard; same != usesDefault[platform] {
			t.Errorf("platform %s: manifest equals default.yaml: %v, want %v", platform, same,
				usesDefault[platform])
		}
		if !usesDefault[platform] {
			files[platform+".yaml"] = m
		}
	}
	present, err := filepath.Glob(manifestDir + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range present {
		if _, expected := files[filepath.Base(path)]; !expected {
			t.Errorf("%s belongs to no platform: delete it", path)
		}
	}
	for name, want := range files {
		path := filepath.Join(manifestDir, name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is out of date, run make manifests (-want +got)\n%s", name, diff)
		}
	}
}
