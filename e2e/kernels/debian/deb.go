package debian

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"pault.ag/go/debian/deb"
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
func Files(packageFile string, fn func(File) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("package %s: %w", packageFile, err)
		}
	}()
	file, err := os.Open(packageFile)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	archive, err := deb.LoadAr(file)
	if err != nil {
		return err
	}
	member, err := archive.Next()
	for err == nil && !strings.HasPrefix(member.Name, "data.tar") {
		member, err = archive.Next()
	}
	if err != nil {
		return fmt.Errorf("find the member data.tar: %w", err)
	}
	data, closer, err := member.Tarfile()
	if err != nil {
		return err
	}
	defer func() { _ = closer.Close() }()
	for {
		header, err := data.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f := File{
			Name: path.Clean("/" + header.Name), Perm: header.FileInfo().Mode().Perm(),
			Content: data,
		}
		switch header.Typeflag {
		case tar.TypeReg:
		case tar.TypeSymlink:
			f.Link = header.Linkname
		case tar.TypeLink:
			return fmt.Errorf("%s is a hard link, which is not supported", f.Name)
		default:
			continue
		}
		if err := fn(f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
}
