package source_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// FuzzKubeconfig parses arbitrary input as a kubeconfig. No connection succeeds: only the text of
// the kubeconfig matters. Errors are short lines.
func FuzzKubeconfig(f *testing.F) {
	server := apiservertest.StartInMemory(f)
	for _, edit := range []func(cluster, user fields){
		func(_, _ fields) {},
		func(cluster, user fields) {
			delete(cluster, "certificate-authority-data")
			cluster["insecure-skip-tls-verify"], user["exec"] = true, fields{"command": "aws"}
		},
		func(_, user fields) {
			user["client-certificate-data"], user["client-key-data"] = server.ClientCertificate()
		},
		func(cluster, user fields) {
			cluster["proxy-url"], user["as"] = "socks5://127.0.0.1", "admin"
		},
	} {
		text, err := os.ReadFile(server.KubeconfigWith(edit))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: &a [x]\nb: [*a, *a]\ncurrent-context: *a"))
	f.Fuzz(func(t *testing.T, text []byte) {
		// A fuzzed path may name any file, such as a pipe without a writer.
		if strings.ContainsAny(string(text), "/") &&
			!strings.Contains(string(text), "https://memory.test") {
			return
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		api := newSource(t, source.Options{Kubeconfig: path, Dial: refuse})
		err := api.Ready(t.Context())
		if err == nil {
			t.Fatal("ready without an API server")
		}
		if !source.IsMisconfigured(err) && !source.IsUnavailable(err) {
			t.Errorf("error %v has kind %q, want misconfigured or unavailable", err, source.KindOf(err))
		}
		checkText(t, err, "")
	})
}

// FuzzAnswer sends arbitrary answers of an API server: the result is the requested pod, or an error
// in a short line. The budget is sufficient for one attempt.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default","uid":"556740d7-0403-486a-8758-b92ee8a08100"}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default","uid":"\u0000\n"}}`,
		`{"kind":"Pod","kind":[],"metadata":{"labels":1}}`,
		`{"kind":"Status","apiVersion":"v1","message":"pods \"web\" not found","details":{"kind":"pods","name":"web"},"code":404}`,
		`[`, `{}`, ``, `null`,
	} {
		f.Add(200, "application/json; charset=utf-8", "", body)
		f.Add(404, "application/json", "", body)
		f.Add(503, "text/html", "1", body)
		f.Add(401, "", "Fri, 31 Dec 1999 23:59:59 GMT", body)
		f.Add(501, "", "Fri, 31 Dec 2999 23:59:59 GMT", body)
	}
	f.Fuzz(func(t *testing.T, code int, contentType, retryAfter, body string) {
		if code < 200 || code > 999 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			server := apiservertest.StartInMemory(t)
			server.Always(apiservertest.ReplyWith(code,
				http.Header{"Content-Type": {contentType}, "Retry-After": {retryAfter}}, body))
			const budget = 10 * time.Millisecond
			api := newSource(t, source.Options{
				Kubeconfig: server.Kubeconfig(), Dial: server.Dial, Timeout: budget,
			})
			got := requestPod(t.Context(), api, web)
			switch {
			case got.elapsed > budget:
				t.Errorf("the request took %v, want at most the budget of %v", got.elapsed, budget)
			case got.err != nil:
				checkText(t, got.err, "pod default/web: API server memory.test:443: ")
			case code != http.StatusOK || !got.pod.HasUID(web.UID) ||
				got.pod.Metadata.Name != "web" || got.pod.Metadata.Namespace != "default":
				t.Errorf("the pod from status code %d and body %q is %+v, want the requested pod", code,
					body, got.pod)
			}
		})
	})
}

// refuse is a Dial function that never connects.
func refuse(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
