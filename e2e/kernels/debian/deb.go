package debian

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/ulikunitz/xz"
)

// A File is one that a package has: a regular file, or a symbolic link.
type File struct {
	// Name is its absolute path.
	Name string
	// Perm are its permissions.
	Perm fs.FileMode
	// Link is what a symbolic link points to; empty for a regular file.
	Link string
	// Content is a regular file's, good until the next file.
	Content io.Reader
}

// Files calls each with every file of a package (deb(5)), in its order. An error of each ends it.
func Files(deb string, each func(File) error) error {
	file, err := os.Open(deb)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	data, err := member(bufio.NewReader(file), "data.tar.xz")
	if err != nil {
		return fmt.Errorf("package %s: %w", deb, err)
	}
	plain, err := xz.NewReader(data)
	if err != nil {
		return fmt.Errorf("package %s: %w", deb, err)
	}
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("package %s: %w", deb, err)
		}
		f := File{Name: path.Clean("/" + header.Name), Perm: header.FileInfo().Mode().Perm(), Content: archive}
		switch header.Typeflag {
		case tar.TypeReg:
		case tar.TypeSymlink:
			f.Link = header.Linkname
		case tar.TypeLink:
			return fmt.Errorf("package %s: %s is a hard link, which is not supported", deb, f.Name)
		default:
			continue
		}
		if err := each(f); err != nil {
			return fmt.Errorf("package %s: %s: %w", deb, f.Name, err)
		}
	}
}

// member returns the member of an archive of ar(5): a line that begins it, then for each member a
// header of 60 bytes and the content, padded to an even length.
func member(r io.Reader, name string) (io.Reader, error) {
	const magic, headerSize, sizeBegin, sizeEnd = "!<arch>\n", 60, 48, 58
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(r, begin); err != nil || string(begin) != magic {
		return nil, errors.New("this is no archive")
	}
	for {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(r, header); err != nil {
			return nil, fmt.Errorf("no %s in the archive: %w", name, err)
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[sizeBegin:sizeEnd])), 10, 64)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("a member of the archive has the size %q", header[sizeBegin:sizeEnd])
		}
		if strings.TrimRight(string(header[:16]), " /") == name {
			return io.LimitReader(r, size), nil
		}
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return nil, fmt.Errorf("no %s in the archive: %w", name, err)
		}
	}
}
