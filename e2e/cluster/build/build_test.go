package build

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newTestBuilder returns a builder and its log. The builder's source directory contains a small
// program, a program that does not compile, and a text file.
func newTestBuilder(t *testing.T) (*builder, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	b := &builder{source: t.TempDir(), out: t.TempDir(), log: &log}
	for file, content := range map[string]string{
		"good/go.mod":  "module good\n\ngo 1.26\n",
		"good/main.go": "package main\n\nfunc main() {}\n",
		"bad/go.mod":   "module bad\n\ngo 1.26\n",
		"bad/main.go":  "package main\n\nfunc main() { undefined() }\n",
		"text":         "1",
	} {
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(filepath.Join(b.source, file)), 0o755),
			os.WriteFile(filepath.Join(b.source, file), []byte(content), 0o644),
		); err != nil {
			t.Fatal(err)
		}
	}
	return b, &log
}

// countingComponent returns a component that counts its builds.
func countingComponent(times *int, from ...string) component {
	return component{name: "x", inputs: from, make: func(_ context.Context, _ *builder, out string) error {
		*times++
		return os.WriteFile(filepath.Join(out, "made"), nil, 0o644)
	}}
}

func TestProgramIsRebuiltWhenItsInputChanges(t *testing.T) {
	b, _ := newTestBuilder(t)
	times := 0
	p := countingComponent(&times, "text", "good")
	build := func(want int, reason string) string {
		t.Helper()
		dir, err := b.build(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "made")); err != nil || times != want {
			t.Errorf("%s: built %d times, want %d; stat of the file: error %v", reason, times, want,
				err)
		}
		return dir
	}
	first := build(1, "first build")
	build(1, "nothing has changed")
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(b.source, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("text", "2")
	if second := build(2, "a file has changed"); second == first {
		t.Errorf("same directory %s for different inputs", first)
	}
	write("good/new.go", "package main\n")
	build(3, "a directory has a new file")
	write("bad/new.go", "package main\n")
	build(3, "another component has a new file")
	write("text", "1")
	if err := os.Remove(filepath.Join(b.source, "good/new.go")); err != nil {
		t.Fatal(err)
	}
	if second := build(3, "the inputs are the initial ones again"); second != first {
		t.Errorf("directory %s for the initial inputs, want %s", second, first)
	}
}

func TestFailedBuildLeavesNoProgram(t *testing.T) {
	b, _ := newTestBuilder(t)
	wrong := errors.New("wrong")
	p := component{name: "x", inputs: []string{"text"}, make: func(
		_ context.Context, _ *builder, out string,
	) error {
		return errors.Join(wrong, os.WriteFile(filepath.Join(out, "half"), nil, 0o644))
	}}
	if _, err := b.build(t.Context(), p); !errors.Is(err, wrong) {
		t.Errorf("failed build: error %v, want %v", err, wrong)
	}
	if remaining, err := os.ReadDir(b.out); err != nil || len(remaining) > 0 {
		t.Errorf("files after a failed build: %v, error %v, want none", remaining, err)
	}
	// Simulate a crash during the build.
	if err := os.MkdirAll(filepath.Join(b.out, "x.unfinished", "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	times := 0
	dir, err := b.build(t.Context(), countingComponent(&times, "text"))
	if _, halfErr := os.Stat(filepath.Join(dir, "half")); err != nil || times != 1 ||
		!errors.Is(halfErr, fs.ErrNotExist) {
		t.Errorf("built %d times, want once; error %v; stat of the unfinished file: error %v, want "+
			"fs.ErrNotExist", times, err, halfErr)
	}
}

func TestCompile(t *testing.T) {
	b, log := newTestBuilder(t)
	c := compilation{module: "good", packages: []string{"."}, out: filepath.Join(b.out, "program")}
	if err := b.compile(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.out); err != nil ||
		!strings.Contains(log.String(), "program: done in") {
		t.Errorf("compiled program: stat error %v, log %s; want a file and its build time in the log",
			err, log)
	}
	c.module = "bad"
	if err := b.compile(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("program that does not compile: error %v, want the compiler's message", err)
	}
	c.module = "none"
	if err := b.compile(t.Context(), c); err == nil {
		t.Error("missing module: no error, want an error")
	}
}

func TestFailedCompilationWithoutMessagesIsOneLine(t *testing.T) {
	b, _ := newTestBuilder(t)
	programs := t.TempDir()
	put(t, programs, map[string]string{"go": "#!/bin/sh\nexit 1\n"})
	if err := os.Chmod(filepath.Join(programs, "go"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	err := b.compile(t.Context(), compilation{module: "good"})
	want := "build in " + filepath.Join(b.source, "good") + ": go: exit status 1"
	if err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestImageContainsItsName(t *testing.T) {
	b, _ := newTestBuilder(t)
	c := compilation{module: "good", packages: []string{"."}}
	if err := b.buildImage(t.Context(), c, b.out, "program", "e2e.test/program:1"); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(filepath.Join(b.out, "program.tar"))
	if err != nil || !bytes.Contains(archive, []byte("e2e.test/program:1")) {
		t.Errorf("archive of %d bytes, error %v, want the image's name in it", len(archive), err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	b, _ := newTestBuilder(t)
	unlock, err := b.lock()
	if err != nil {
		t.Fatal(err)
	}
	// The test waits for lines of this log.
	log := make(lines, 9)
	other := &builder{out: b.out, log: log}
	locked := make(chan error)
	go func() {
		unlock, err := other.lock()
		if err == nil {
			unlock()
		}
		locked <- err
	}()
	if line := <-log; !strings.Contains(line, "waiting for another process to build it") {
		t.Errorf("log %q, want a message about waiting", line)
	}
	select {
	case err := <-locked:
		t.Errorf("second lock: error %v, want no result before the unlock", err)
	default:
	}
	unlock()
	if err := <-locked; err != nil {
		t.Error(err)
	}
}

// lines is a log that sends each line to the channel.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestSeccompUnpacksMissingHeaders(t *testing.T) {
	b, _ := newTestBuilder(t)
	env, err := b.seccompEnv(t.Context(), filepath.Join(b.out, "seccomp"))
	if err != nil {
		t.Fatal(err)
	}
	// If the headers are installed, nothing is unpacked.
	for _, variable := range env {
		if dir, found := strings.CutPrefix(variable, "PKG_CONFIG_PATH="); found {
			if _, err := os.Stat(filepath.Join(dir, "libseccomp.pc")); err != nil {
				t.Error(err)
			}
		}
	}
	if env[0] != "CGO_ENABLED=1" {
		t.Errorf("environment %q, want CGO_ENABLED=1 first", env)
	}
}

func TestModuleDirDownloadsMissingModule(t *testing.T) {
	proxy, cache := t.TempDir(), t.TempDir()
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GOMODCACHE", cache)
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOFLAGS", "-mod=mod -modcacherw")
	var archive bytes.Buffer
	files := zip.NewWriter(&archive)
	for name, content := range map[string]string{
		"go.mod": "module example.com/m\n", "m.go": "package m\n",
	} {
		w, err := files.Create("example.com/m@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(proxy, "example.com/m/@v"), map[string]string{
		"list": "v1.0.0\n", "v1.0.0.info": `{"Version": "v1.0.0"}`,
		"v1.0.0.mod": "module example.com/m\n", "v1.0.0.zip": archive.String(),
	})
	b := &builder{source: t.TempDir()}
	put(t, b.source,
		map[string]string{
			"user/go.mod": "module user\n\ngo 1.26\n\nrequire example.com/m v1.0.0\n",
		})
	dir, err := b.moduleDir(t.Context(), compilation{module: "user"}, "example.com/m")
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "m.go")); got != "package m\n" {
		t.Errorf("m.go in %s contains %q, want package m", dir, got)
	}
}
