package build

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A compilation is a call of go build.
type compilation struct {
	module   string   // directory of the module, relative to this package
	packages []string // packages to build
	out      string   // path of the program, or an existing directory for several programs
	flags    []string
	env      []string // in addition to the environment of this process
}

// progressInterval is the interval of progress messages.
const progressInterval = 3 * time.Second

// compile runs a compilation, and regularly logs how many packages it has compiled.
func (b *builder) compile(ctx context.Context, c compilation) error {
	begin, name := time.Now(), filepath.Base(c.out)
	// -trimpath is not among the flags, because packages that tests use too would be compiled
	// twice.
	flags := append([]string{"-buildvcs=false"}, c.flags...)
	stalePackages, err := b.run(ctx, c,
		append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags...)...)
	if err != nil {
		return err
	}
	build := b.command(ctx, c, append([]string{"build", "-v", "-o", c.out}, flags...)...)
	output, err := build.StderrPipe()
	if err != nil {
		return err
	}
	if err := build.Start(); err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(output); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var printed buildOutput
	total := len(strings.Fields(stalePackages))
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for open := true; open; {
		select {
		case line, more := <-lines:
			if open = more; open {
				printed.add(line)
			}
		case <-tick.C:
			fmt.Fprintf(b.log, "%s: %d of %d packages, %.0f s\n", name, printed.packages, total,
				time.Since(begin).Seconds())
		}
	}
	if err := build.Wait(); err != nil {
		return fmt.Errorf("go build in %s: %w%s", build.Dir, err, &printed.messages)
	}
	fmt.Fprintf(b.log, "%s: built in %.0f s\n", name, time.Since(begin).Seconds())
	return nil
}

// A buildOutput counts the packages that go build -v has printed, and contains the messages.
type buildOutput struct {
	packages int
	messages strings.Builder // each begins with a newline
}

// add adds a line. A line with spaces is a message, and every other line is a package.
func (o *buildOutput) add(line string) {
	if strings.ContainsAny(line, " \t") {
		o.messages.WriteString("\n" + line)
	} else {
		o.packages++
	}
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
