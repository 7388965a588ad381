package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// seccomp returns the environment in which runc is built with libseccomp. Where its headers are not
// installed, the distribution's package is unpacked into a folder.
func (b *builder) seccomp(ctx context.Context, dir string) (env []string, err error) {
	env = []string{"CGO_ENABLED=1"}
	if exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil {
		return env, nil
	}
	fmt.Fprintln(b.log, "runc: gets libseccomp-dev from the distribution")
	if err := unpack(ctx, dir, "libseccomp-dev"); err != nil {
		return nil, fmt.Errorf(
			"runc needs the headers of libseccomp: install them, or have apt-get: %w", err)
	}
	configuration, err := filepath.Glob(filepath.Join(dir, "usr/lib/*/pkgconfig"))
	if err != nil || len(configuration) != 1 {
		return nil, errors.Join(fmt.Errorf("libseccomp-dev in %s has no pkg-config file", dir), err)
	}
	// What pkg-config says is no part of the key under which go build keeps a package, and the next
	// folder is another: the flags are.
	libraries := filepath.Dir(configuration[0])
	return append(env, "PKG_CONFIG_PATH="+configuration[0], "PKG_CONFIG_SYSROOT_DIR="+dir,
		"CGO_CFLAGS=-I"+filepath.Join(dir, "usr/include"), "CGO_LDFLAGS=-L"+libraries), nil
}

// download puts a package of the distribution into a folder. Where the machine does not know what
// the distribution has, it asks in that folder, so that nothing else changes.
func download(ctx context.Context, dir, name string) error {
	first := in(ctx, dir, "apt-get", "-qq", "download", name)
	if first == nil {
		return nil
	}
	lists := []string{
		"-qq", "-o", "Dir::State::Lists=" + filepath.Join(dir, "lists"), "-o",
		"Dir::Cache=" + filepath.Join(dir, "cache"),
	}
	if err := os.MkdirAll(filepath.Join(dir, "lists", "partial"), 0o755); err != nil {
		return err
	}
	err := in(ctx, dir, "apt-get", append(lists, "update")...)
	if err == nil {
		err = in(ctx, dir, "apt-get", append(lists, "download", name)...)
	}
	if err != nil {
		return errors.Join(first, err)
	}
	return nil
}

// in runs a command in a folder; an error has what it said.
func in(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
