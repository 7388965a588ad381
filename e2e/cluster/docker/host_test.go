package docker_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
)

// fakePrograms returns a directory with fake programs docker and kind. They append their command
// lines to the file calls. docker ps prints the contents of the file left.
func fakePrograms(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\necho \"${0##*/} $*\" >>" + dir + "/calls\n[ \"$1\" != ps ] || cat " +
		dir + "/left\n"
	for _, name := range []string{"docker", "kind"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "left"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func calls(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

// mustBeRemovedOnce fails the test unless the cluster x was removed exactly once.
func mustBeRemovedOnce(t *testing.T, programs, parent string) {
	t.Helper()
	for _, want := range []string{
		"kind delete cluster --quiet --name x\n", "docker network rm x\n",
		"docker image rm --force " + docker.NodeImage("x") + "\n",
	} {
		if got := strings.Count(calls(t, programs), want); got != 1 {
			t.Errorf("%q was called %d times, want once; calls:\n%s", want, got, calls(t, programs))
		}
	}
	if remaining, err := os.ReadDir(parent); err != nil || len(remaining) > 0 {
		t.Errorf("files after the removal: %v, error %v; want none", remaining, err)
	}
}

func TestCloseRemovesTheClusterFromTheHostEngine(t *testing.T) {
	programs, parent := fakePrograms(t), t.TempDir()
	e, err := docker.UseHost(programs, parent, "x")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := e.Command(t.Context(), "kind", "version").CombinedOutput(); err != nil ||
		calls(t, programs) != "kind version\n" {
		t.Errorf("kind version: output %q, error %v, calls %q; want one call", out, err,
			calls(t, programs))
	}
	if info, err := os.Stat(e.Dir()); err != nil || !info.IsDir() {
		t.Errorf("stat of %s: error %v, want a directory", e.Dir(), err)
	}
	if got := docker.ProcessDir(e, os.Getpid()); got != fmt.Sprintf("/proc/%d", os.Getpid()) {
		t.Errorf("directory of this process: %s, want /proc/%d", got, os.Getpid())
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	mustBeRemovedOnce(t, programs, parent)
}

func TestLeftoversInTheEngineAreReported(t *testing.T) {
	programs := fakePrograms(t)
	if err := os.WriteFile(filepath.Join(programs, "left"), []byte("0123abc\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	e, err := docker.UseHost(programs, t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "0123abc") {
		t.Errorf("error %v, want the ID of the remaining object", err)
	}
}

// If childEnv is set, the test binary uses the engine until it is killed.
const childEnv = "SLUICE_TEST_KILLED"

func TestEndOfTheProcessRemovesTheClusterFromTheHostEngine(t *testing.T) {
	if folders := os.Getenv(childEnv); folders != "" {
		programs, parent, _ := strings.Cut(folders, ":")
		if _, err := docker.UseHost(programs, parent, "x"); err != nil {
			t.Fatal(err)
		}
		fmt.Println("engine in use")
		select {}
	}
	programs, parent := fakePrograms(t), t.TempDir()
	process := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	process.Env = append(os.Environ(), childEnv+"="+programs+":"+parent)
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, new(string), new(string), new(string)); err != nil {
		t.Fatal(err)
	}
	_, _ = process.Process.Kill(), process.Wait()
	for deadline := time.After(time.Minute); ; {
		if remaining, err := os.ReadDir(parent); err == nil && len(remaining) == 0 {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("the cluster was not removed:\n%s", calls(t, programs))
		case <-time.After(10 * time.Millisecond):
		}
	}
	mustBeRemovedOnce(t, programs, parent)
}
