package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// blobs are contents by digest.
type blobs map[string][]byte

func (b blobs) add(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: int64(len(content))}
	b[d.Digest] = content
	return d
}

func (b blobs) addJSON(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, fmt.Errorf("encode %s: %w", mediaType, err)
	}
	return b.add(mediaType, content), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// writeArchive writes an image layout as a tar archive.
func writeArchive(w io.Writer, store blobs, top []byte) error {
	archive := tar.NewWriter(w)
	var errs []error
	put := func(header tar.Header, content []byte) {
		if len(errs) > 0 {
			return
		}
		header.Size, header.Format = int64(len(content)), tar.FormatUSTAR
		if err := archive.WriteHeader(&header); err != nil {
			errs = append(errs, err)
			return
		}
		if _, err := io.Copy(archive, bytes.NewReader(content)); err != nil {
			errs = append(errs, err)
		}
	}
	file := func(name string, content []byte) {
		put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content)
	}
	file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	file("index.json", top)
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		put(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	for _, d := range slices.Sorted(maps.Keys(store)) {
		file("blobs/sha256/"+strings.TrimPrefix(d, "sha256:"), store[d])
	}
	if err := errors.Join(append(errs, archive.Close())...); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}
