package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Name returns the name of the image in an archive of [Write] or [WriteLayout].
func Name(archive string) (string, error) {
	f, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s: %w: index.json", archive, fs.ErrNotExist)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", archive, err)
		}
		if h.Name != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(r).Decode(&index); err != nil {
			return "", fmt.Errorf("%s: index.json: %w", archive, err)
		}
		if len(index.Manifests) != 1 {
			return "", fmt.Errorf("%s: index.json contains %d images, want 1", archive,
				len(index.Manifests))
		}
		return index.Manifests[0].Annotations[NameAnnotation], nil
	}
}
