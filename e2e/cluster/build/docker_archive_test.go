package build

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDockerArchiveHasAllNamesAndOneLayer(t *testing.T) {
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "images", "x.tar")
	put(t, root, map[string]string{"bin/a": "program"})
	if err := tree(root).link("a", "bin/b"); err != nil {
		t.Fatal(err)
	}
	if err := (dockerArchive{
		refs: []string{"x:1", "y:1"}, env: []string{"PATH=/bin"}, root: root,
	}).write(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	files := archiveEntries(t, strings.NewReader(read(t, file)))
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal([]byte(files["manifest.json"]), &manifest); err != nil ||
		len(manifest) != 1 {
		t.Fatalf("manifest %s, error %v; want one image", files["manifest.json"], err)
	}
	slices.Sort(manifest[0].RepoTags) // the library does not keep their order
	if diff := cmp.Diff([]string{"x:1", "y:1"}, manifest[0].RepoTags); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	layer := files[manifest[0].Layers[0]]
	if config := files[manifest[0].Config]; !strings.Contains(config,
		fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(layer)))) ||
		!strings.Contains(config, "PATH=/bin") {
		t.Errorf("the configuration is %s, want the digest of the layer and PATH=/bin", config)
	}
	want := map[string]string{"bin": "", "bin/a": "program", "bin/b": "-> a"}
	if diff := cmp.Diff(want, archiveEntries(t, strings.NewReader(layer))); diff != "" {
		t.Errorf("entries of the layer (-want +got)\n%s", diff)
	}
	if remaining, err := os.ReadDir(filepath.Dir(file)); err != nil || len(remaining) != 1 {
		t.Errorf("files beside the archive: %v, error %v; want only the archive", remaining, err)
	}
}

// archiveEntries returns the contents of the files in an archive, and "-> " and the target for
// links.
func archiveEntries(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	found := map[string]string{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(header.Name, "/")
		if found[name] = string(content); header.Linkname != "" {
			found[name] = "-> " + header.Linkname
		}
	}
}
