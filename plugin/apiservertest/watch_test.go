package apiservertest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestListsAndTokensAreAnsweredAsAnAPIServerDoes(t *testing.T) {
	s := apiservertest.Start(t)
	s.Put("{metadata: {name: a}, spec: {nodeName: x}}",
		"{metadata: {name: b}, spec: {nodeName: y1}}", "{kind: Namespace, metadata: {name: ns}}")
	c := newClient(t, s, nil)
	for path, want := range map[string]string{
		"/api/v1/pods": "PodList a b", "/api/v1/pods?fieldSelector=spec.nodeName%3Dy1": "PodList b",
		"/api/v1/namespaces": "NamespaceList ns",
	} {
		_, body := request(t, c, s, http.MethodGet, path, s.Token())
		got := body["kind"].(string)
		for _, item := range body["items"].([]any) {
			got += " " + item.(map[string]any)["metadata"].(map[string]any)["name"].(string)
		}
		if got != want || body["metadata"].(map[string]any)["resourceVersion"] != "3" {
			t.Errorf("%s: body %v, want %s at version 3", path, body, want)
		}
	}
	const path = "/api/v1/namespaces/ns/serviceaccounts/a/token"
	if code, _ := request(t, c, s, http.MethodPost, path, s.Token()); code != 403 {
		t.Errorf("a request for a token gets status code %d by default, want 403", code)
	}
	s.Issue(func(int64) (string, time.Time) { return "new", time.Now() })
	if code, _ := request(t, c, s, http.MethodPost, path, s.Token()); code != 400 {
		t.Errorf("a request for a token without a TokenRequest gets status code %d, want 400", code)
	}
	s.AddToken("new")
	for token, want := range map[string]int{"new": 200, s.Token(): 200, "other": 401} {
		if code, _ := request(t, c, s, http.MethodGet, "/api/v1/pods", token); code != want {
			t.Errorf("token %s: status code %d, want %d", token, code, want)
		}
	}
	s.SetToken("only")
	if code, _ := request(t, c, s, http.MethodGet, "/api/v1/pods", "new"); code != 401 {
		t.Errorf("a token that SetToken has replaced gets status code %d, want 401", code)
	}
}

func TestWatchesStreamEvents(t *testing.T) {
	s := apiservertest.Start(t)
	s.Put("{metadata: {name: a}, spec: {nodeName: x}}",
		"{metadata: {name: b}, spec: {nodeName: y1}}")
	watch := func(query string) func() string {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			s.URL()+"/api/v1/pods?watch=true&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.Token())
		answer, err := newClient(t, s, nil).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		lines := bufio.NewScanner(answer.Body)
		return func() string {
			if !lines.Scan() {
				return "end"
			}
			var e struct {
				Type   string
				Object struct {
					Code     int
					Metadata struct{ Name, ResourceVersion string }
				}
			}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(e.Type + " " + e.Object.Metadata.Name + " " +
				e.Object.Metadata.ResourceVersion)
		}
	}
	streamed, since := watch("sendInitialEvents=true&fieldSelector=spec.nodeName%3Dx"),
		watch("resourceVersion=1")
	got := []string{streamed(), streamed(), since()}
	s.Put("{metadata: {name: a, labels: {c: d}}, spec: {nodeName: x}}")
	got = append(got, streamed(), since())
	s.DeletePod("default", "a")
	got = append(got, streamed(), since())
	s.ForgetHistory()
	got = append(got, streamed(), streamed())
	want := []string{
		"ADDED a 1", "BOOKMARK  2", "ADDED b 2", "MODIFIED a 3", "MODIFIED a 3", "DELETED a 4",
		"DELETED a 4", "ERROR", "end",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got)\n%s", d)
	}
	old := watch("resourceVersion=1")
	if got := old(); got != "ERROR" {
		t.Errorf("a watch from a version that is too old sends %s, want ERROR", got)
	}
}
