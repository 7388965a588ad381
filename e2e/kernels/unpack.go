package kernels

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
)

// Files of an unpacked kernel: the kernel, and the directory of its modules.
const (
	imageFile  = "vmlinuz"
	modulesDir = "modules"
)

// unpackOnce calls fill to create the content of a directory, unless the directory exists. fill
// writes to a temporary directory, which is renamed when it is complete.
func unpackOnce(dir string, fill func(dir string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), ".part-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	if err := errors.Join(os.Chmod(temporary, 0o755), fill(temporary)); err != nil {
		return err
	}
	return os.Rename(temporary, dir)
}

// unpackKernel extracts the kernel, and the modules that a machine may need, from the kernel's
// package into dir.
func unpackKernel(deb, dir string) error {
	return debian.Files(deb, func(f debian.File) error {
		if strings.HasPrefix(f.Name, "/boot/vmlinuz-") {
			return write(filepath.Join(dir, imageFile), f.Content)
		}
		module := moduleFiles.FindStringSubmatch(f.Name)
		if module == nil {
			return nil
		}
		content := f.Content
		if strings.HasSuffix(f.Name, ".xz") {
			var err error
			if content, err = xz.NewReader(content); err != nil {
				return err
			}
		}
		target := filepath.Join(dir, modulesDir, module[1])
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return write(target, content)
	})
}

// moduleFiles matches the modules that a machine may need. The submatch is the path below
// /lib/modules without the suffix of a compression. Other modules are not decompressed, because
// that is slow.
var moduleFiles = regexp.MustCompile(`/lib/modules/([^/]+/kernel/` +
	`(?:net|lib|crypto|arch/[^/]*/(?:lib|crypto)|drivers/net/(?:veth|dummy))[./].*ko)(?:\.xz)?$`)

// unpackProgram extracts programs, libraries and configuration from a package.
func unpackProgram(deb, dir string) error {
	return debian.Files(deb, func(f debian.File) error {
		if !machineFiles.MatchString(f.Name) {
			return nil
		}
		target := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if f.Link != "" {
			return os.Symlink(f.Link, target)
		}
		return errors.Join(write(target, f.Content), os.Chmod(target, f.Perm))
	})
}

// machineFiles matches the files of packages that a machine uses.
var machineFiles = regexp.MustCompile(`^/(bin/|lib|etc/protocols$|` +
	`usr/sbin/(nft|ip6?tables-(legacy|nft)(-save|-restore)?|xtables-(legacy|nft)-multi)$|` +
	`usr/lib/[^/]*/(lib[^/]*\.so|xtables/))`)

// write creates a file with the content.
func write(file string, content io.Reader) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
