package listen

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestIsOpen checks that isOpen determines the state of a socket without a connection, which
// istio-cni would count as a connected ztunnel.
func TestIsOpen(t *testing.T) {
	for _, network := range []string{"unix", "unixpacket"} {
		t.Run(network, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			if isOpen(path) {
				t.Error("isOpen is true without a file")
			}
			l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			if !isOpen(path) {
				t.Error("isOpen is false while a process listens")
			}
			_ = l.SetDeadline(time.Unix(1, 0))
			if conn, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Accept returns %v, %v, want no connection", conn, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if isOpen(path) {
				t.Error("isOpen is true after the end of the process")
			}
			if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if isOpen(path) {
				t.Error("isOpen is true with a regular file")
			}
		})
	}
}

// TestServerKeepsTheSocketOfAnotherProcess checks that a server does not replace the socket of a
// running process, and makes no connection to the socket.
func TestServerKeepsTheSocketOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "s")
	s := New(Options{Network: "unixpacket", Path: path, MaxConnections: 1, Failed: func(error) {}})
	first, err := s.ensureSocket(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	other, err := open("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = other.SetDeadline(time.Unix(1, 0))
	for range 3 {
		if current, err := s.ensureSocket(first); current != first || err != nil {
			t.Fatalf("ensureSocket: error %v, want none, and the socket of the running process to stay", err)
		}
	}
	if conn, err := other.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Accept returns %v, %v, want no connection", conn, err)
	}
	_ = other.Close()
	second, err := s.ensureSocket(first)
	if err != nil || second == first {
		t.Fatalf("ensureSocket: error %v, want none, and a new socket after the other was closed", err)
	}
	_ = second.Close()
}

// TestARunningServerKeepsTheSocketOfAnotherProcess checks that Run leaves its path to the socket of
// another process, and creates its own socket again when the process ends.
func TestARunningServerKeepsTheSocketOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "s")
	failures := make(chan error, 10)
	s := New(Options{
		Network: "unixpacket", Path: path, MaxConnections: 1, Failed: func(err error) { failures <- err },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	rulestest.Eventually(t, "the server listens", s.Listening)
	other, err := open("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	rulestest.Eventually(t, "the server has found the other socket", s.Replaced)
	if !other.isInPlace() || !s.Listening() || len(failures) > 0 {
		t.Errorf("the other socket is in place: %t, listening: %t, number of reported failures: %d; "+
			"want true, true, 0", other.isInPlace(), s.Listening(), len(failures))
	}
	_ = other.Close()
	rulestest.Eventually(t, "the server has created its socket again", func() bool { return !s.Replaced() })
	if err := <-failures; !strings.Contains(err.Error(), "was removed, and was created again") {
		t.Errorf("reported %v, want that the socket was created again", err)
	}
}
