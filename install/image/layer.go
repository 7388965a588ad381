package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// A layer is the file system of a variant.
type layer struct {
	compressed []byte
	// diffID is the digest before compression, and size what the files take.
	diffID string
	size   int64
}

// newLayer packs a file system. Modes, owners and times on disk say nothing: everything is root's, and whoever runs it may read and
// execute.
func newLayer(p Platform) (layer, error) {
	var l layer
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	err := fs.WalkDir(p.Root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case entry.IsDir():
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, Format: tar.FormatUSTAR})
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s: not a regular file", name)
		}
		n, err := addProgram(w, p, name)
		l.size += n
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return layer{}, fmt.Errorf("pack the files: %w", err)
	}
	if l.size == 0 {
		return layer{}, errors.New("pack the files: there are none")
	}
	l.diffID = digest(plain.Bytes())
	l.compressed, err = compress(plain.Bytes())
	return l, err
}

func addProgram(w *tar.Writer, p Platform, name string) (size int64, err error) {
	content, err := fs.ReadFile(p.Root, name)
	if err != nil {
		return 0, err
	}
	if err := checkProgram(content, p.Architecture); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	size = int64(len(content))
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: size, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return 0, err
	}
	_, err = w.Write(content)
	return size, err
}

func compress(plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(w, bytes.NewReader(plain))
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("compress the files: %w", err)
	}
	return out.Bytes(), nil
}
