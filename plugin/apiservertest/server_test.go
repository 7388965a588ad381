package apiservertest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const webPath = "/api/v1/namespaces/default/pods/web"

// newClient returns a client that trusts the authority of the server.
func newClient(
	t *testing.T, s *apiservertest.Server, dial func(
		context.Context, string, string,
	) (net.Conn, error),
) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA())
	transport := &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// request makes a request and returns the status and the body.
func request(
	t *testing.T, c *http.Client, s *apiservertest.Server, method, path, token string,
) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatalf("decode the body %q: %v", text, err)
	}
	return answer.StatusCode, body
}

func TestServerAnswersAsAnAPIServer(t *testing.T) {
	for _, row := range []struct {
		name, method, path, token string
		code                      int
		kind, message             string
	}{
		{"a pod", http.MethodGet, webPath, "sluice.test.token", 200, "Pod", ""},
		{
			"a namespace", http.MethodGet, "/api/v1/namespaces/default", "sluice.test.token", 200,
			"Namespace", "",
		},
		{
			"a deleted pod", http.MethodGet, webPath + "2", "sluice.test.token", 404,
			"Status", `pods "web2" not found`,
		},
		{
			"a path that does not exist", http.MethodGet, "/", "sluice.test.token", 404, "Status",
			`/ "/" not found`,
		},
		{"no token", http.MethodGet, webPath, "", 401, "Status", "Unauthorized"},
		{"another token", http.MethodGet, webPath, "other", 401, "Status", "Unauthorized"},
		{
			"a change", http.MethodDelete, "/api/v1/namespaces/default", "sluice.test.token", 405,
			"Status", "the server does not allow this method",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := apiservertest.Start(t)
			s.Put("metadata: {name: web, uid: a}", "kind: Namespace\nmetadata: {name: default}",
				"metadata: {name: web2}")
			s.DeletePod("default", "web2")
			code, body := request(t, newClient(t, s, nil), s, row.method, row.path, row.token)
			message, _ := body["message"].(string)
			if code != row.code || body["kind"] != row.kind || body["apiVersion"] != "v1" ||
				message != row.message {
				t.Errorf("status code %d, want %d; body %v, want kind %s and message %q", code,
					row.code, body, row.kind, row.message)
			}
		})
	}
}

func TestBehaviorsApplyInTurn(t *testing.T) {
	s := apiservertest.Start(t)
	s.Put("metadata: {name: web, uid: a}")
	s.Next(apiservertest.InternalError(), apiservertest.OtherUID("b"))
	c := newClient(t, s, nil)
	var got []any
	for range 4 {
		if len(got) == 3 {
			s.Always(apiservertest.Forbidden())
		}
		code, body := request(t, c, s, http.MethodGet, webPath, s.Token())
		metadata, _ := body["metadata"].(map[string]any)
		got = append(got, []any{code, metadata["uid"]})
	}
	want := []any{[]any{500, nil}, []any{200, "b"}, []any{200, "a"}, []any{403, nil}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("status codes and UIDs (-want +got)\n%s", d)
	}
	if n := s.Connections(); n != 1 || len(s.Requests()) != 4 {
		t.Errorf("%d connections and %d requests, want 1 and 4", n, len(s.Requests()))
	}
}

// TestBehaviorsApplyToOpenConnections checks that a behavior for connections applies to a request
// on a connection that is open already.
func TestBehaviorsApplyToOpenConnections(t *testing.T) {
	for _, row := range []struct {
		name        string
		behavior    apiservertest.Behavior
		isAnswered  bool
		connections int
	}{
		{"no handshake", apiservertest.NoHandshake(), false, 1},
		{"reset, after which net/http opens another connection", apiservertest.Reset(), true, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiservertest.StartInMemory(t)
				s.Put("metadata: {name: web}")
				c := newClient(t, s, s.Dial)
				c.Timeout = time.Second
				request(t, c, s, http.MethodGet, webPath, s.Token())
				s.Next(row.behavior)
				answer, err := c.Get(s.URL() + webPath)
				if err == nil {
					answer.Body.Close()
				}
				if (err == nil) != row.isAnswered || s.Connections() != row.connections {
					t.Errorf("%d connections, error %v; want %d connections, and an answer: %t",
						s.Connections(), err, row.connections, row.isAnswered)
				}
			})
		})
	}
}

func TestNeverAccepting(t *testing.T) {
	d := net.Dialer{Timeout: 50 * time.Millisecond}
	c, err := d.DialContext(t.Context(), "tcp", apiservertest.NeverAccepting(t)[len("https://"):])
	if err == nil {
		c.Close()
		t.Fatal("the connection was accepted, want a timeout")
	}
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("error %v, want a timeout", err)
	}
}

func TestKubeconfigIsReplaced(t *testing.T) {
	s := apiservertest.Start(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, token := range []string{"first", "second"} {
		s.SetToken(token)
		s.WriteKubeconfig(path, func(cluster, _ map[string]any) {
			cluster["tls-server-name"] = "localhost"
		})
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Clusters []struct{ Cluster map[string]any }
			Users    []struct{ User map[string]any }
		}
		if err := yaml.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if got.Users[0].User["token"] != token ||
			got.Clusters[0].Cluster["tls-server-name"] != "localhost" {
			t.Errorf("kubeconfig %s, want the token %s and the server name localhost", text, token)
		}
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("files %v, want only the kubeconfig", files)
	}
}
