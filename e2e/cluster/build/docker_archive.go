package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// A dockerArchive is an image in the format of docker save. It has one uncompressed layer with the
// files in root, the names refs, and the environment env. Unlike package image, it supports links
// and dynamically linked programs.
type dockerArchive struct {
	refs, env []string
	root      string
}

// layerName is the name of the layer in the archive.
const layerName = "layer.tar"

// write writes the archive to a file.
func (a dockerArchive) write(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	layer, err := os.CreateTemp(filepath.Dir(file), layerName)
	if err != nil {
		return err
	}
	defer func() { _, _ = layer.Close(), os.Remove(layer.Name()) }()
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), a.root); err != nil {
		return fmt.Errorf("pack %s: %w", a.root, err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": a.env},
		"rootfs": map[string]any{
			"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sum.Sum(nil))},
		},
	})
	if err != nil {
		return err
	}
	const configName = "config.json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": a.refs, "Layers": []string{layerName},
	}})
	if err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	archive, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(archive)
	for _, entry := range []struct {
		name    string
		size    int64
		content io.Reader
	}{
		{"manifest.json", int64(len(manifest)), bytes.NewReader(manifest)},
		{configName, int64(len(config)), bytes.NewReader(config)},
		{layerName, size, layer},
	} {
		if err := w.WriteHeader(&tar.Header{
			Name: entry.name, Mode: 0o644, Size: entry.size,
		}); err != nil {
			return err
		}
		if _, err := io.Copy(w, entry.content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), archive.Close())
}

// writeLayer writes the files, directories and links of a directory, owned by root.
func writeLayer(out io.Writer, root string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var target string
		if info.Mode().Type() == fs.ModeSymlink {
			if target, err = os.Readlink(file); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		if header.Name, err = filepath.Rel(root, file); err != nil {
			return err
		}
		header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = content.Close() }()
		_, err = io.Copy(w, content)
		return err
	})
	return errors.Join(err, w.Close())
}
