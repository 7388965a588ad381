package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
)

// archive returns a tar archive with a static program that prints its arguments.
func archive(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	source := "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(os.Args[1:]) }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("go", "build", "-o", "say", "main.go")
	compile.Dir, compile.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "say"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{
		Name: "say", Mode: 0o755, Size: int64(len(program)),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestNamespacedEngineRunsPrivilegedContainerAndIsRemoved(t *testing.T) {
	if os.Getenv("E2E_PROVIDER") != "kind" {
		t.Skip("E2E_PROVIDER is not kind: \"make e2e-kind\" runs this")
	}
	image, parent := archive(t), t.TempDir()
	software, err := build.ForKind(t.Context(), t.Output(), true, false)
	if err != nil {
		t.Fatal(err)
	}
	e, err := docker.StartNamespaced(t.Context(), software, parent)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	waitForEngine(t, e)
	load := e.Command(t.Context(), "docker", "import", "-", "say")
	load.Stdin = bytes.NewReader(image)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker import: %v: %s", err, out)
	}
	run := e.Command(t.Context(), "docker", "run", "--privileged",
		"--volume=/lib/modules:/lib/modules:ro", "say", "/say", "hello")
	out, err := run.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "[hello]" {
		t.Errorf("output of the container: %q, error %v; want [hello]", out, err)
	}
	logs := filepath.Join(t.TempDir(), "logs")
	if err := e.Logs(logs); err != nil {
		t.Error(err)
	}
	if log, err := os.ReadFile(filepath.Join(logs, "dockerd.log")); err != nil ||
		!strings.Contains(string(log), "level=") {
		t.Errorf("log of dockerd: %q, error %v; want lines with a level", log, err)
	}
	if _, err := os.Stat(filepath.Join(docker.ProcessDir(e, 1), "ns/net")); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if remaining, err := os.ReadDir(parent); err != nil || len(remaining) > 0 {
		t.Errorf("files after Close: %v, error %v; want none", remaining, err)
	}
}

func waitForEngine(t *testing.T, e docker.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		out, err := e.Command(ctx, "docker", "version").CombinedOutput()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("docker version: %v: %s", err, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
