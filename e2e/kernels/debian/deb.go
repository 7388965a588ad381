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

// A File is a file of a package: a regular file or a symbolic link.
type File struct {
	// Name is the absolute path.
	Name string
	// Perm contains the permissions.
	Perm fs.FileMode
	// Link is the target of a symbolic link, empty for a regular file.
	Link string
	// Content is the content of a regular file. It is valid only during the call of fn in Files.
	Content io.Reader
}

// Files calls fn for each file of a package (deb(5)), in order. It stops at the first error of fn
// and returns it.
func Files(deb string, fn func(File) error) error {
	file, err := os.Open(deb)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	compressed, err := member(bufio.NewReader(file), "data.tar.xz")
	if err != nil {
		return fmt.Errorf("package %s: %w", deb, err)
	}
	uncompressed, err := xz.NewReader(compressed)
	if err != nil {
		return fmt.Errorf("package %s: %w", deb, err)
	}
	archive := tar.NewReader(uncompressed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("package %s: %w", deb, err)
		}
		f := File{
			Name: path.Clean("/" + header.Name), Perm: header.FileInfo().Mode().Perm(),
			Content: archive,
		}
		switch header.Typeflag {
		case tar.TypeReg:
		case tar.TypeSymlink:
			f.Link = header.Linkname
		case tar.TypeLink:
			return fmt.Errorf("package %s: %s is a hard link, which is not supported", deb, f.Name)
		default:
			continue
		}
		if err := fn(f); err != nil {
			return fmt.Errorf("package %s: %s: %w", deb, f.Name, err)
		}
	}
}

// member returns the content of a member of an ar(5) archive. After the first line, each member has
// a header and its content, padded to an even length. The header contains the name and, in decimal,
// the size of the content.
func member(r io.Reader, name string) (io.Reader, error) {
	const magic, headerSize, nameEnd, sizeBegin, sizeEnd = "!<arch>\n", 60, 16, 48, 58
	firstLine := make([]byte, len(magic))
	if _, err := io.ReadFull(r, firstLine); err != nil || string(firstLine) != magic {
		return nil, errors.New("not an ar archive")
	}
	for {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(r, header); err != nil {
			return nil, fmt.Errorf("no member %s in the archive: %w", name, err)
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[sizeBegin:sizeEnd])), 10, 64)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("archive member has an invalid size %q",
				header[sizeBegin:sizeEnd])
		}
		if strings.TrimRight(string(header[:nameEnd]), " /") == name {
			return io.LimitReader(r, size), nil
		}
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return nil, fmt.Errorf("no member %s in the archive: %w", name, err)
		}
	}
}
