package apiservertest

import (
	"os"
	"path/filepath"
	"time"
)

// ProjectInto writes the files token and ca.crt into a directory, as a kubelet projects them into a
// pod. Later calls of Project write into the same directory.
func (s *Server) ProjectInto(dir string) {
	s.tb.Helper()
	s.mu.Lock()
	s.projected = dir
	s.mu.Unlock()
	s.Project()
}

// Project writes both files again, with the current token and certificate authority.
func (s *Server) Project() {
	s.tb.Helper()
	s.mu.Lock()
	dir := s.projected
	s.mu.Unlock()
	for name, content := range map[string][]byte{"token": []byte(s.Token()), "ca.crt": s.CA()} {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path+".new", content, 0o600)
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			s.tb.Fatal(err)
		}
	}
}

// TokenFile returns the path of the projected token. The first call projects both files into a
// directory of the test, unless ProjectInto has named one.
func (s *Server) TokenFile() string { return s.projectedFile("token") }

// CAFile returns the path of the projected certificate authority, like TokenFile.
func (s *Server) CAFile() string { return s.projectedFile("ca.crt") }

// projectedFile returns the path of a projected file.
func (s *Server) projectedFile(name string) string {
	s.tb.Helper()
	s.mu.Lock()
	dir := s.projected
	s.mu.Unlock()
	if dir == "" {
		dir = s.tb.TempDir()
		s.ProjectInto(dir)
	}
	return filepath.Join(dir, name)
}

// RotateAuthority gives the server a certificate of a new authority, and closes all connections.
// The projected files do not change.
func (s *Server) RotateAuthority() {
	authority := newCertificates()
	s.mu.Lock()
	s.authority = authority
	s.mu.Unlock()
	s.CloseConnections()
}

// RecreateAccount makes the server reject all existing tokens, as an API server does after the
// ServiceAccount was deleted and created again, and closes all connections. The projected files do
// not change. The new token is valid for an hour from the given time.
func (s *Server) RecreateAccount(from time.Time) {
	s.SetToken(JWT(Account, from, from.Add(time.Hour)))
	s.CloseConnections()
}
