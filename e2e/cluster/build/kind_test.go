package build

import (
	"path/filepath"
	"testing"
)

func TestDefaultImageIsTheConstantOfKind(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{
		"known.go":   "package defaults\n\n// Image is x.\nconst Image = \"kindest/node:v1@sha256:01\"\n",
		"unknown.go": "package defaults\n\nvar images []string\n",
	})
	file := filepath.Join(dir, "image")
	if err := writeDefaultImage(filepath.Join(dir, "known.go"), file); err != nil {
		t.Fatal(err)
	}
	if got := read(t, file); got != "kindest/node:v1@sha256:01" {
		t.Errorf("image %q, want the value of the constant Image", got)
	}
	for _, source := range []string{"unknown.go", "none.go"} {
		if err := writeDefaultImage(filepath.Join(dir, source), file); err == nil {
			t.Errorf("default image of %s: no error, want an error", source)
		}
	}
}
