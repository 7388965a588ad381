package build

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// A part is built as a whole, into a folder of its own.
type part struct {
	name string
	// from are the files and folders, relative to this package's, that decide what comes out.
	from []string
	// make builds into a folder.
	make func(ctx context.Context, b *builder, out string) error
	// found tells where it is.
	found func(s *Software, dir string)
}

// A builder builds the parts.
type builder struct {
	source, out string // the folder of this package, and the one for what is built
	log         io.Writer
}

// part returns the folder of a part, which is built if it is not there.
func (b *builder) part(ctx context.Context, p part) (string, error) {
	key, err := b.key(p)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.out, p.name+"-"+key)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	// Under another name first: a folder that is there is whole, even after a crash.
	unfinished := filepath.Join(b.out, p.name+".unfinished")
	if err := errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o755)); err != nil {
		return "", err
	}
	fmt.Fprintf(b.log, "%s: builds into %s\n", p.name, dir)
	if err := p.make(ctx, b, unfinished); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return dir, os.Rename(unfinished, dir)
}

// key identifies what a part is built from: the names and the content of its files, the release of
// Go and the architecture.
func (b *builder) key(p part) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	for _, from := range p.from {
		err := filepath.WalkDir(filepath.Join(b.source, from), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(file)
			fmt.Fprintf(sum, "%s %d\n%s", entry.Name(), len(content), content)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), nil
}
