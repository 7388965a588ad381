package serve_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/listen"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/servetest"
)

func TestObstructingFilesAreReplaced(t *testing.T) {
	createDeadSocket := func(path string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			l.SetUnlinkOnClose(false)
			err = l.Close()
		}
		return err
	}
	for name, prepare := range map[string]func(path string) error{
		"the socket of a dead agent": createDeadSocket,
		"a file": func(path string) error {
			return os.WriteFile(path, nil, 0o644)
		},
		"a link": func(path string) error { return os.Symlink("/etc/passwd", path) },
		"the unfinished socket of a dead agent": func(path string) error {
			return createDeadSocket(filepath.Join(filepath.Dir(path), ".new-X"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := socket(t)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			env := start(t, path, serve.Options{Objects: echo})
			if _, err := env.client().Pod(t.Context(), web); err != nil {
				t.Error(err)
			}
			if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
				t.Errorf("files %v, want only the socket", entries)
			}
		})
	}
}

// TestCreationOfTheSocketIsRetried checks that a failure is reported once, and that the server
// retries until it succeeds.
func TestCreationOfTheSocketIsRetried(t *testing.T) {
	path := socket(t)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env := &testEnv{path: path, more: make(chan struct{})}
	env.Server = serve.New(servetest.Fill(serve.Options{Socket: path, Objects: echo, Failed: func(err error) {
		env.report("failed %v", err)
	}}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		env.Run(ctx)
	}()
	env.wait(t, "failed listen on socket "+path+": ")
	if env.Listening() {
		t.Error("Listening is true without a socket")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for !env.Listening() {
		time.Sleep(time.Millisecond)
	}
	if reports := env.reported(); len(reports) != 1 {
		t.Errorf("reported %q, want one failure", reports)
	}
	cancel()
	<-done
	if env.Listening() {
		t.Error("Listening is true after Run has returned")
	}
}

func TestDirectoryOfAnotherOwnerIsAnError(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the owner of a directory")
	}
	path := socket(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Dir(path), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s := serve.New(servetest.Fill(serve.Options{Socket: path, Objects: echo, Failed: func(err error) {
		failed <- err
		cancel()
	}}))
	s.Run(ctx)
	if err := <-failed; !strings.Contains(err.Error(), filepath.Dir(path)+
		" must be a directory of uid 0") {
		t.Errorf("failed with %v, want an error about the owner of the directory", err)
	}
}

func TestAPathThatIsTooLongIsAnError(t *testing.T) {
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s := serve.New(servetest.Fill(serve.Options{
		Socket: filepath.Join(t.TempDir(), strings.Repeat("x", 100), "s"), Objects: echo,
		Failed: func(err error) { failed <- err; cancel() },
	}))
	s.Run(ctx)
	if err := <-failed; !strings.Contains(err.Error(),
		"the path of a socket may have at most 107 bytes") {
		t.Errorf("failed with %v, want an error about the length of the path", err)
	}
}

func TestRemove(t *testing.T) {
	path := socket(t)
	env := start(t, path, serve.Options{Objects: echo})
	env.stop()
	for range 2 {
		if err := listen.Remove(path); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
			t.Errorf("stat of the directory of the socket: error %v, want that it does not exist", err)
		}
	}
}
