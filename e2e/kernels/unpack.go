package kernels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
	"github.com/sluice-mesh/sluice/e2e/kernels/kmod"
)

// Files of an unpacked kernel: the kernel, and the index of its modules.
const (
	imageFile   = "vmlinuz"
	modulesFile = "modules.json"
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

// unpackKernel extracts the kernel, and the modules that a machine needs, from the kernel's package
// into dir.
func unpackKernel(deb, dir string) error {
	var candidates kmod.Index
	files := map[string][]byte{}
	err := debian.Files(deb, func(f debian.File) error {
		if strings.HasPrefix(f.Name, "/boot/vmlinuz-") {
			return write(filepath.Join(dir, imageFile), f.Content)
		}
		if !candidateModules.MatchString(f.Name) {
			return nil
		}
		content, err := uncompressedModule(f)
		if err != nil {
			return err
		}
		m, err := kmod.Describe(bytes.NewReader(content))
		if err != nil {
			return err
		}
		m.Path = f.Name
		candidates, files[m.Name] = append(candidates, m), content
		return nil
	})
	if err != nil {
		return err
	}
	modules := candidates.Only(func(m kmod.Module) bool {
		return selectedModules.MatchString(m.Path)
	})
	for i := range modules {
		m := &modules[i]
		m.Path = "/lib/modules/" + m.Name + ".ko"
		if err := os.WriteFile(filepath.Join(dir, path.Base(m.Path)), files[m.Name],
			0o644); err != nil {
			return err
		}
	}
	text, err := json.Marshal(modules)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, modulesFile), text, 0o644)
}

// candidateModules matches the modules that may be needed. Only these are decompressed, because
// decompressing all modules is slow.
var candidateModules = regexp.MustCompile(
	`/kernel/(net|lib|crypto|arch/[^/]*/(lib|crypto)|drivers/net/(veth|dummy))[./].*ko(\.xz)?$`)

// selectedModules matches the modules that a machine needs. Their dependencies are added.
var selectedModules = regexp.MustCompile(
	`/kernel/(net/(netfilter|ipv4|ipv6)/|drivers/net/(veth|dummy)\.ko)`)

// uncompressedModule returns the uncompressed content of a module.
func uncompressedModule(f debian.File) ([]byte, error) {
	if !strings.HasSuffix(f.Name, ".xz") {
		return io.ReadAll(f.Content)
	}
	r, err := xz.NewReader(f.Content)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

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
