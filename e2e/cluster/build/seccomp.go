package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// seccompEnv returns the environment for building a program with libseccomp. If the headers are not
// installed, it unpacks the distribution's package into dir.
func (b *builder) seccompEnv(ctx context.Context, dir string) (env []string, err error) {
	env = []string{"CGO_ENABLED=1"}
	if exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil {
		return env, nil
	}
	fmt.Fprintln(b.log, "downloading libseccomp-dev")
	if err := unpack(ctx, dir, "libseccomp-dev"); err != nil {
		return nil, fmt.Errorf(
			"the headers of libseccomp are required: install them or apt-get: %w", err)
	}
	pkgConfig, err := filepath.Glob(filepath.Join(dir, "usr/lib/*/pkgconfig"))
	if err != nil || len(pkgConfig) != 1 {
		return nil, errors.Join(fmt.Errorf("libseccomp-dev in %s has no pkg-config file", dir), err)
	}
	// The flags are passed by variables too, because the cache key of go build includes the
	// variables, but not the output of pkg-config, which contains the directory.
	libraries := filepath.Dir(pkgConfig[0])
	return append(env, "PKG_CONFIG_PATH="+pkgConfig[0], "PKG_CONFIG_SYSROOT_DIR="+dir,
		"CGO_CFLAGS=-I"+filepath.Join(dir, "usr/include"), "CGO_LDFLAGS=-L"+libraries), nil
}

// download downloads a package of the distribution into a directory. If that fails, for example
// because the package is unknown, download fetches current package lists into the directory,
// without changing the system's lists, and tries again.
func download(ctx context.Context, dir, name string) error {
	firstErr := runIn(ctx, dir, "apt-get", "-qq", "download", name)
	if firstErr == nil {
		return nil
	}
	options := []string{
		"-qq", "-o", "Dir::State::Lists=" + filepath.Join(dir, "lists"), "-o",
		"Dir::Cache=" + filepath.Join(dir, "cache"),
	}
	if err := os.MkdirAll(filepath.Join(dir, "lists", "partial"), 0o755); err != nil {
		return err
	}
	err := runIn(ctx, dir, "apt-get", append(options, "update")...)
	if err == nil {
		err = runIn(ctx, dir, "apt-get", append(options, "download", name)...)
	}
	if err != nil {
		return errors.Join(firstErr, err)
	}
	return nil
}

// runIn runs a command in a directory. An error contains the output of the command.
func runIn(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
