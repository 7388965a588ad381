package release

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// chartDir is the directory of the chart in the checkout.
const chartDir = "install/chart"

// chart writes the packaged chart. It sets the version, the changes from the change log, and the
// digest of the image, so that nodes pull exactly this image.
func (r *Release) chart(digest string) error {
	dir := os.DirFS(filepath.Join(r.Source, chartDir))
	var files []file
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".go" {
			return err
		}
		content, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		files = append(files, file{"sluice/" + name, 0o644, content})
		return nil
	})
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	changes, err := r.changes()
	if err != nil {
		return err
	}
	const indent = "\n    "
	for _, edit := range []struct{ name, from, to string }{
		{"sluice/Chart.yaml", "\nversion: 0.1.0\n", "\nversion: " + r.versionNumber() + "\n"},
		{"sluice/Chart.yaml", "\nappVersion: 0.1.0\n", "\nappVersion: " + r.versionNumber() + "\n"},
		{"sluice/Chart.yaml", "image: ghcr.io/sluice-mesh/sluice:0.1.0\n", "image: " + r.ref() +
			"\n"},
		{
			"sluice/Chart.yaml", indent + "- kind: added\n      description: First version\n",
			indent + strings.ReplaceAll(strings.TrimSpace(changes), "\n", indent) + "\n",
		},
		{"sluice/values.yaml", "\n  hub: ghcr.io/sluice-mesh\n", "\n  hub: " + r.Hub + "\n"},
		{"sluice/values.yaml", "\ndigest: \"\"\n", "\ndigest: " + digest + "\n"},
	} {
		i := slices.IndexFunc(files, func(f file) bool { return f.name == edit.name })
		if i < 0 || strings.Count(string(files[i].content), edit.from) != 1 {
			return fmt.Errorf("chart: %s: must contain %q once", edit.name, edit.from)
		}
		files[i].content = []byte(strings.Replace(string(files[i].content), edit.from, edit.to, 1))
	}
	// Helm requires Chart.yaml before the files of subdirectories.
	slices.SortStableFunc(files, func(a, b file) int {
		return strings.Count(a.name, "/") - strings.Count(b.name, "/")
	})
	return r.addArchive(r.chartName(), files)
}
