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

// addChart writes the packaged chart. It sets the version, the changes from the change log, the
// image's name, the hub, and the digest of the image, so that nodes pull exactly this image.
func (r *Release) addChart(imageDigest string) error {
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
		return fmt.Errorf("read the chart: %w", err)
	}
	changes, err := r.changesYAML()
	if err != nil {
		return err
	}
	const metadata, values, indentedLine = "sluice/Chart.yaml", "sluice/values.yaml", "\n    "
	number := r.versionNumber()
	for _, edit := range []struct{ name, from, to string }{
		{metadata, "\nversion: 0.1.0\n", "\nversion: " + number + "\n"},
		{metadata, "\nappVersion: 0.1.0\n", "\nappVersion: " + number + "\n"},
		{metadata, "image: ghcr.io/sluice-mesh/sluice:0.1.0\n", "image: " + r.imageRef() + "\n"},
		{
			metadata, indentedLine + "- kind: added\n      description: First version\n",
			indentedLine + strings.ReplaceAll(strings.TrimSpace(changes), "\n", indentedLine) +
				"\n",
		},
		{values, "\n  hub: ghcr.io/sluice-mesh\n", "\n  hub: " + r.Hub + "\n"},
		{values, "\ndigest: \"\"\n", "\ndigest: " + imageDigest + "\n"},
	} {
		i := slices.IndexFunc(files, func(f file) bool { return f.name == edit.name })
		if i < 0 || strings.Count(string(files[i].content), edit.from) != 1 {
			return fmt.Errorf("chart: %s: must contain %q once", edit.name, edit.from)
		}
		files[i].content = []byte(strings.Replace(string(files[i].content), edit.from, edit.to, 1))
	}
	return r.addArchive(r.chartName(), files)
}
