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

// A component is a unit of software that is built into its own directory.
type component struct {
	name string
	// inputs lists files and directories, relative to the directory of this package. If one of them
	// changes, the component is built again.
	inputs []string
	// make builds the component in the directory out.
	make func(ctx context.Context, b *builder, out string) error
	// set stores the component's directory in s. It is nil if only other components use the
	// component.
	set func(s *Software, dir string)
}

// A builder builds components.
type builder struct {
	source, out string // directory of this package, and directory of the components
	log         io.Writer
}

// build returns the directory of a component, and builds it if it does not exist.
func (b *builder) build(ctx context.Context, c component) (string, error) {
	key, err := b.key(c)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.out, c.name+"-"+key)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	// Build in a temporary directory and rename it, so that an existing directory is complete even
	// after a crash.
	unfinished := filepath.Join(b.out, c.name+".unfinished")
	if err := errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o755)); err != nil {
		return "", err
	}
	fmt.Fprintf(b.log, "%s: building into %s\n", c.name, dir)
	if err := c.make(ctx, b, unfinished); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return dir, os.Rename(unfinished, dir)
}

// key returns a hash of the inputs of a component: the names and contents of its files, the version
// of Go and the architecture.
func (b *builder) key(c component) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	for _, input := range c.inputs {
		err := filepath.WalkDir(filepath.Join(b.source, input), func(
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
	const keyBytes = 6 // enough to distinguish the few versions that a checkout builds
	return fmt.Sprintf("%x", sum.Sum(nil)[:keyBytes]), nil
}
