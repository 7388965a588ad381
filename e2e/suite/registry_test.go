package suite_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// startRegistry starts an empty registry on a loopback address of this machine and of each node. On
// this machine it uses TLS. On the nodes it uses HTTP, as containerd does for loopback addresses.
// It returns the address, and a directory with the CA certificate for clients on this machine.
func (tc *testCluster) startRegistry(t *testing.T) (address, certificates string) {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(registry.New(registry.Logger(quiet)))
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(server.Close)
	address, certificates = server.Listener.Addr().String(), t.TempDir()
	for _, n := range tc.Nodes() {
		listener, err := n.Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() { _ = http.Serve(listener, server.Config.Handler) }()
	}
	certificate := pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: server.Certificate().Raw,
	})
	if err := os.WriteFile(filepath.Join(certificates, "registry.pem"), certificate,
		0o644); err != nil {
		t.Fatal(err)
	}
	return address, certificates
}
