package listen

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
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
