package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// buildPrograms builds the programs for an architecture, and returns their content by name.
func (r *Release) buildPrograms(
	ctx context.Context, arch string,
) (built map[string][]byte, err error) {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args := []string{
		"build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -X main.version=" + r.Version,
		"-o", dir + "/",
	}
	for _, name := range []string{Agent, Plugin, Rules, Client} {
		args = append(args, sourceDirs[name])
	}
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = r.Source
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build for %s: %w\n%s", arch, err, bytes.TrimSpace(out))
	}
	built = map[string][]byte{}
	for name := range sourceDirs {
		if built[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return built, nil
}

// runOutput runs a program of the checkout on this machine, and returns its output.
func (r *Release) runOutput(ctx context.Context, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", append([]string{"run", sourceDirs[name]}, args...)...)
	c.Dir = r.Source
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w\n%s", name, args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
