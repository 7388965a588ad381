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

// A part is built as a whole into its own directory.
type part struct {
	name string
	// from are the inputs: files and directories relative to this package.
	from []string
	// make builds the part in a directory.
	make func(ctx context.Context, b *builder, out string) error
	// found stores the directory.
	found func(s *Software, dir string)
}

// A builder builds the parts.
type builder struct {
	source, out string // the folder of this package, and the one for what is built
	log         io.Writer
}

// part returns the directory of a part, and builds it if it does not exist.
func (b *builder) part(ctx context.Context, p part) (string, error) {
	key, err := b.key(p)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.out, p.name+"-"+key)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	// Build under another name, so that an existing directory is always complete, even after a
	// crash.
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

// key identifies the inputs of a part: the names and contents of its files, the release of Go and
// the architecture.
func (b *builder) key(p part) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	for _, from := range p.from {
		err := filepath.WalkDir(filepath.Join(b.source, from), func(
			file string, entry fs.DirEntry, err error,
		) error {
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
