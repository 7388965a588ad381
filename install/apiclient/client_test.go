package apiclient_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func optionsFor(s *apiservertest.Server) apiclient.Options {
	return apiclient.Options{
		Server: s.URL(), TokenFile: s.TokenFile(), CAFile: s.CAFile(), UserAgent: "agent/1",
	}
}

func newClient(t *testing.T, o apiclient.Options) *apiclient.Client {
	t.Helper()
	c, err := apiclient.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// get returns the status code of a request for the namespaces; 0 if there is no reply.
func get(t *testing.T, c *apiclient.Client) (int, error) {
	t.Helper()
	response, err := c.Do(t.Context(), http.MethodGet, "/api/v1/namespaces", nil)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// TestCredentialsAreRenewed checks that the next request uses a new token and a new certificate
// authority.
func TestCredentialsAreRenewed(t *testing.T) {
	s := apiservertest.Start(t)
	var outcomes []string
	o := optionsFor(s)
	o.Outcome = func(token string, code int, err error) {
		text := token + " " + http.StatusText(code)
		if err != nil {
			text = token + " no reply"
		}
		outcomes = append(outcomes, text)
	}
	c := newClient(t, o)
	expect := func(want int) {
		t.Helper()
		if code, err := get(t, c); code != want || (want == 0) != (err != nil) {
			t.Errorf("status code %d, error %v; want code %d", code, err, want)
		}
	}
	s.SetToken("first")
	s.Project()
	expect(200)
	s.SetToken("second")
	expect(401)
	s.Project()
	expect(200)
	s.RotateAuthority()
	expect(0)
	s.Project()
	expect(200)
	want := []string{"first OK", "first Unauthorized", "second OK", "second no reply", "second OK"}
	if !slices.Equal(outcomes, want) {
		t.Errorf("outcomes %q, want %q", outcomes, want)
	}
}

// TestCertificateAuthorityStaysWithoutANewOne checks that an incomplete or missing CA file does not
// replace the previous authority.
func TestCertificateAuthorityStaysWithoutANewOne(t *testing.T) {
	s := apiservertest.Start(t)
	c := newClient(t, optionsFor(s))
	if err := os.WriteFile(s.CAFile(), []byte("-----BEGIN CERT"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, err := get(t, c); code != 200 || err != nil {
		t.Errorf("incomplete CA file: status code %d, error %v; want code 200", code, err)
	}
	if err := os.Remove(s.CAFile()); err != nil {
		t.Fatal(err)
	}
	if code, err := get(t, c); code != 200 || err != nil {
		t.Errorf("missing CA file: status code %d, error %v; want code 200", code, err)
	}
}

// TestRedirectsAreNotFollowed checks that the token is not sent to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other, s := apiservertest.Start(t), apiservertest.Start(t)
	location := http.Header{"Location": {other.URL() + "/api/v1/namespaces"}}
	s.Always(apiservertest.ReplyWith(http.StatusTemporaryRedirect, location, ""))
	c := newClient(t, optionsFor(s))
	if code, err := get(t, c); code != http.StatusTemporaryRedirect || err != nil {
		t.Errorf("status code %d, error %v; want the redirect", code, err)
	}
	client, err := c.REST(rest.ContentConfig{
		GroupVersion:         &schema.GroupVersion{Version: "v1"},
		NegotiatedSerializer: serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get().Resource("namespaces").DoRaw(t.Context()); err == nil {
		t.Error("a client of client-go treats the redirect as a response")
	}
	if n := len(other.Requests()); n > 0 || len(s.Requests()) != 2 {
		t.Errorf("%d requests to the server and %d to the other one, want 2 and 0",
			len(s.Requests()), n)
	}
}

func TestRequestsHaveTheUserAgentAndAContentType(t *testing.T) {
	s := apiservertest.Start(t)
	c := newClient(t, optionsFor(s))
	for method, want := range map[string]string{
		http.MethodGet:   "",
		http.MethodPost:  "application/json",
		http.MethodPatch: "application/merge-patch+json",
	} {
		var body any
		if method != http.MethodGet {
			body = map[string]int{"a": 1}
		}
		response, err := c.Do(t.Context(), method, "/api/v1/namespaces/a", body)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		requests := s.Requests()
		h := requests[len(requests)-1].Header
		if h.Get("Content-Type") != want || h.Get("User-Agent") != "agent/1" ||
			h.Get("Accept") != "application/json" {
			t.Errorf("headers of a %s request: %v; want the content type %q", method, h, want)
		}
	}
}

func TestInvalidOptionsAreErrors(t *testing.T) {
	s := apiservertest.Start(t)
	noCA := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(noCA, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, o := range map[string]apiclient.Options{
		"create a client of the API server": {Server: "::", CAFile: s.CAFile()},
		"certificate authority of the API server: open ": {Server: s.URL(), CAFile: noCA +
			".missing"},
		"ca.crt contains no certificate in PEM": {Server: s.URL(), CAFile: noCA},
	} {
		if _, err := apiclient.New(o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("New returns the error %v, want an error that contains %q", err, text)
		}
	}
	o := optionsFor(s)
	o.CAFile, o.SkipTLSVerify = "", true
	if code, err := get(t, newClient(t, o)); code != 200 || err != nil {
		t.Errorf("without verification: status code %d, error %v; want code 200", code, err)
	}
	o.TokenFile = noCA + ".missing"
	_, err := get(t, newClient(t, o))
	if err == nil || !strings.Contains(err.Error(), "service account token: ") {
		t.Errorf("without a token: error %v, want an error about the service account token", err)
	}
}
