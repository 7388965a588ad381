package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// writeArchive writes a file system as a tar archive. Files have the given mode, directories 0755,
// and all belong to root. Modes, owners and times on disk are ignored.
func writeArchive(w io.Writer, root fs.FS, mode int64) error {
	archive := tar.NewWriter(w)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case entry.IsDir():
			return archive.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, Format: tar.FormatUSTAR,
			})
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s: not a regular file", name)
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)),
			Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	return errors.Join(err, archive.Close())
}
