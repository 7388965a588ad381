package image

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// newLayer packs the file system of a platform, and returns the layer and the total size of its
// files in bytes.
func newLayer(p Platform) (v1.Layer, int64, error) {
	var archive bytes.Buffer
	if err := writeArchive(&archive, p.Root, 0o755); err != nil {
		return nil, 0, fmt.Errorf("pack the files: %w", err)
	}
	size, err := checkPrograms(p)
	if err != nil {
		return nil, 0, fmt.Errorf("pack the files: %w", err)
	}
	open := func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}
	files, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	return files, size, err
}

// checkPrograms returns the total size of all files, or an error if a file cannot run in the image.
func checkPrograms(p Platform) (size int64, err error) {
	err = fs.WalkDir(p.Root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := fs.ReadFile(p.Root, name)
		if err != nil {
			return err
		}
		size += int64(len(content))
		if err := checkProgram(content, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err == nil && size == 0 {
		return 0, errors.New("no files")
	}
	return size, err
}
