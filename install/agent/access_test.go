package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/install/token"
)

// TestKubeconfigPartIsReadyWhileTheAPIServerAnswers checks that the readiness part of the
// kubeconfig is ready while the API server would answer requests with it, and contains the reason
// otherwise.
func TestKubeconfigPartIsReadyWhileTheAPIServerAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	good := token.Status{Origin: token.Requested, Expiry: now.Add(time.Hour)}
	with := func(change func(s *token.Status)) token.Status {
		s := good
		change(&s)
		return s
	}
	unavailable := func(since time.Duration) token.Status {
		return with(func(s *token.Status) {
			s.Unavailable, s.UnavailableSince = errors.New("connection refused"), now.Add(-since)
		})
	}
	for _, row := range []struct {
		name   string
		path   string
		status token.Status
		ready  bool
		reason string
	}{
		{"a valid kubeconfig", path, good, true, "the token expires at 2026-11-20T13:00:00Z"},
		{"no kubeconfig yet", path, token.Status{}, false, "no token has been written yet"},
		{"a revoked token", path, with(func(s *token.Status) {
			s.Revoked = true
		}), false, "no longer accepts the token"},
		{"an expired token", path, with(func(s *token.Status) {
			s.Expiry = now
		}), false, "the token expires at 2026-11-20T12:00:00Z"},
		{"a token without permissions", path, with(func(s *token.Status) {
			s.Forbidden = errors.New("403")
		}), false, "a permission is missing"},
		{
			"a short outage of the API server", path, unavailable(10 * time.Second), true,
			"the API server has not replied since 2026-11-20T11:59:50Z: connection refused",
		},
		{
			"an outage of the API server", path, unavailable(time.Minute), false,
			"the API server has not replied since 2026-11-20T11:59:00Z: connection refused",
		},
		{"the next token cannot be written", path, with(func(s *token.Status) {
			s.Problem = errors.New("no space left")
		}), true, "no space left"},
		{"the kubeconfig file is missing", path + "x", good, false, "no such file"},
	} {
		p := kubeconfigPart(row.path, row.status, now)
		if text := strings.Join(p.Reasons, "; "); p.Ready != row.ready ||
			!strings.Contains(text, row.reason) {
			t.Errorf("%s: ready %v, %s; want ready %v with the reason %s", row.name, p.Ready, text,
				row.ready, row.reason)
		}
	}
}

// settingsWith returns the default settings with one changed variable.
func settingsWith(t *testing.T, variable, value string) settings.Values {
	t.Helper()
	return readEnv(t, map[string]string{variable: value})
}

// readEnv returns the settings for an environment. It adds the required variables.
func readEnv(t *testing.T, env map[string]string) settings.Values {
	t.Helper()
	required := map[string]string{"NODE_NAME": "n", "POD_NAME": "p", "POD_NAMESPACE": "s"}
	v, err := settings.Read(func(name string) (string, bool) {
		value, set := env[name]
		if !set {
			value, set = required[name]
		}
		return value, set
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// newAgent returns an agent that is not started.
func newAgent(t *testing.T, env map[string]string) *Agent {
	t.Helper()
	log, err := logs.New("debug", true, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{
		Settings: readEnv(t, env), Log: log,
		API: apiclient.Options{Server: "https://h", TokenFile: "/t", SkipTLSVerify: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestTokenOptions checks the options for the plugin's kubeconfig. If the kubeconfig is the only
// access to pods, it is checked often enough for readiness to notice an outage. It is checked with
// the requests that the plugin needs.
func TestTokenOptions(t *testing.T) {
	const authority = "/service/account/ca.crt"
	for _, row := range []struct {
		name, value string
		want        token.Options
	}{
		{"SLUICE_SERVE", "true", token.Options{Options: apiclient.Options{CAFile: authority}}},
		{
			"SLUICE_SERVE", "false",
			token.Options{
				Options: apiclient.Options{CAFile: authority}, CheckInterval: 30 * time.Second,
			},
		},
		{
			"KUBE_CA_FILE", "/own/ca.crt",
			token.Options{Options: apiclient.Options{CAFile: "/own/ca.crt"}},
		},
		{
			"SLUICE_ENABLEMENT_SELECTORS", `[{"podSelector":{"matchLabels":{"a":"b"}}}]`,
			token.Options{Options: apiclient.Options{CAFile: authority}},
		},
		{
			"SLUICE_ENABLEMENT_SELECTORS", `[{"namespaceSelector":{"matchLabels":{"a":"b"}}}]`,
			token.Options{Options: apiclient.Options{CAFile: authority}, Namespaces: true},
		},
		{ // the default selectors of ambient mode contain a namespaceSelector
			"AMBIENT_ENABLED", "true",
			token.Options{Options: apiclient.Options{CAFile: authority}, Namespaces: true},
		},
	} {
		v := settingsWith(t, row.name, row.value)
		_, parsed, err := Element(v)
		if err != nil {
			t.Fatal(err)
		}
		api := apiclient.Options{Server: "https://h", TokenFile: "/t", CAFile: authority}
		row.want.Kubeconfig, row.want.Mode, row.want.Server, row.want.TokenFile = parsed.Kubeconfig,
			0o600, api.Server, api.TokenFile
		if diff := cmp.Diff(row.want,
			tokenOptions(Options{Settings: v, API: api}, parsed, nil)); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", row.name, row.value, diff)
		}
	}
}
