package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A compilation is a call of go build.
type compilation struct {
	module   string   // directory of the module, relative to this package
	packages []string // packages to build
	out      string   // path of the program, or an existing directory for several programs
	flags    []string
	env      []string // in addition to the environment of this process
}

// compile runs a compilation, and regularly logs the package that it has compiled last.
func (b *builder) compile(ctx context.Context, c compilation) error {
	// -trimpath is not among the flags, because packages that tests use too would be compiled
	// twice.
	args := append([]string{"build", "-buildvcs=false", "-v", "-o", c.out}, c.flags...)
	build := b.command(ctx, c, args...)
	if err := b.runLogged(filepath.Base(c.out), build); err != nil {
		return fmt.Errorf("build in %s: %w", build.Dir, err)
	}
	return nil
}

// run runs a go command for a compilation, and returns its output.
func (b *builder) run(ctx context.Context, c compilation, args ...string) (string, error) {
	cmd := b.command(ctx, c, args...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s in %s: %w", args[0], cmd.Dir, withStderr(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// command returns a go command for a compilation.
func (b *builder) command(ctx context.Context, c compilation, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append(args, c.packages...)...)
	cmd.Dir = filepath.Join(b.source, c.module)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), c.env...)
	return cmd
}

// withStderr returns the error of exec.Cmd.Output with the command's standard error.
func withStderr(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// moduleDir returns the source directory of a required module. It uses go mod download instead
// of go list -m, because go list prints no directory for a module that is not in the cache.
func (b *builder) moduleDir(ctx context.Context, c compilation, module string) (string, error) {
	out, err := b.run(ctx, c, "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &downloaded); err != nil {
		return "", fmt.Errorf("go mod download -json %s: %w", module, err)
	}
	return downloaded.Dir, nil
}
