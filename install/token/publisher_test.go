package token_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestPublishedKubeconfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		cluster, text := w.published()
		want := map[string]any{
			"server": w.server.URL(), "certificate-authority-data": inBase64(w.server.CA()),
		}
		if d := cmp.Diff(want, cluster); d != "" || text != jwt(time.Hour) {
			t.Errorf("token %q (-want +got)\n%s", text, d)
		}
		if info, err := os.Stat(w.options.Kubeconfig); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		want2 := token.Status{
			Origin: token.Projected, PublishedAt: time.Now(), IssuedAt: time.Now(),
			Expiry: time.Now().Add(time.Hour), Published: 1,
			RightsKnown: true,
		}
		if d := cmp.Diff(want2, w.Status()); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		// The plugin can use it.
		api := source.NewAPIServer(source.Options{
			Kubeconfig: w.options.Kubeconfig, Dial: w.server.Dial,
		})
		defer api.Close()
		if err := api.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestModeAndUnverifiedServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) {
			w.options.Mode, w.options.SkipTLSVerify, w.options.CAFile = 0o640, true, ""
		})
		cluster, _ := w.published()
		if d := cmp.Diff(map[string]any{"server": w.server.URL(), "insecure-skip-tls-verify": true},
			cluster); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		if info, err := os.Stat(w.options.Kubeconfig); err != nil || info.Mode() != 0o640 {
			t.Errorf("%v, %v", info, err)
		}
	})
}

// A token that is asked for has a life that does not end with the agent's pod, and is renewed before
// half of it is over.
func TestRequestedTokensAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lifetimes []int64
		w := start(t, func(w *world) {
			w.options.Lifetime = 10 * time.Hour
			w.server.Issue(func(seconds int64) (string, time.Time) {
				lifetimes = append(lifetimes, seconds)
				text := jwt(4 * time.Hour) // the API server gives less
				w.server.AddToken(text)
				return text, time.Now().Add(4 * time.Hour)
			})
		})
		for range 3 {
			s := w.Status()
			if s.Origin != token.Requested || s.Problem != nil ||
				s.Expiry.Sub(s.IssuedAt) != 4*time.Hour {
				t.Fatalf("%+v", s)
			}
			later(time.Until(s.IssuedAt.Add(90*time.Minute - time.Second)))
			if got := w.Status(); got != s || got.Age(time.Now()) != 90*time.Minute-time.Second {
				t.Fatalf("renewed too early: %+v", got)
			}
			later(30*time.Minute + 21*time.Second)
			if got := w.Status(); got.Published != s.Published+1 || !got.Usable(time.Now()) {
				t.Fatalf("not renewed: %+v", got)
			}
		}
		if d := cmp.Diff([]int64{36000, 36000, 36000, 36000}, lifetimes); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	})
}

func TestProjectedTokensAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		_, first := w.published()
		later(48 * time.Minute)
		w.project(jwt(time.Hour))
		later(11 * time.Second)
		_, second := w.published()
		if s := w.Status(); first == second || s.Published != 2 || s.Problem != nil ||
			!s.Usable(time.Now()) {
			t.Errorf("%+v", s)
		}
	})
}

// Rights may come later than the agent.
func TestTokensAreRequestedOnceThatIsPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		w.issues(24 * time.Hour)
		later(11 * time.Minute)
		if s := w.Status(); s.Origin != token.Requested || s.Problem != nil {
			t.Errorf("%+v", s)
		}
	})
}

// Readiness does not flap while tokens come and go.
func TestUsableStaysTrueOverRotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) {
			w.options.Changed = func(s token.Status) {
				if s.Published > 0 && !s.Usable(time.Now()) {
					t.Errorf("%+v", s)
				}
			}
		})
		for range 20 {
			later(30 * time.Minute)
			w.project(jwt(time.Hour))
		}
		later(time.Minute)
		if s := w.Status(); s.Published != 21 || s.Failed+s.Refused > 0 {
			t.Errorf("%+v", s)
		}
	})
}

var errAny = errors.New("any")

// away is the status when the API server does not answer since a time.
func away(since time.Time) token.Status {
	return token.Status{Origin: token.Projected, Unavailable: errAny, UnavailableSince: since}
}

func TestUsable(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		name   string
		status token.Status
		usable bool
	}{
		{"not before anything is published", token.Status{}, false},
		{
			"until it expires",
			token.Status{Origin: token.Projected, Expiry: now.Add(time.Second)},
			true,
		},
		{"not after that", token.Status{Origin: token.Projected, Expiry: now}, false},
		{"for ever if it does not expire", token.Status{Origin: token.Projected}, true},
		{"not when it is revoked", token.Status{Origin: token.Projected, Revoked: true}, false},
		{
			"not without the right to read pods",
			token.Status{Origin: token.Projected, Forbidden: errAny},
			false,
		},
		{"while the API server is away for a moment", away(now.Add(-30*time.Second + 1)), true},
		{"not when that lasts", away(now.Add(-30 * time.Second)), false},
		{
			"though the next token is no good",
			token.Status{Origin: token.Projected, Problem: errAny},
			true,
		},
	} {
		if row.status.Usable(now) != row.usable {
			t.Error(row.name)
		}
	}
	if age := (token.Status{
		Origin: token.Projected, PublishedAt: now,
	}).Age(now.Add(time.Second)); age != time.Second {
		t.Errorf("the age of a token that does not tell it is %v", age)
	}
}

func TestServerURL(t *testing.T) {
	for _, row := range []struct{ protocol, host, port, url, text string }{
		{"", "10.96.0.1", "443", "https://10.96.0.1:443", ""},
		{"https", "fd00::1", "6443", "https://[fd00::1]:6443", ""},
		{"", "kubernetes.default.svc", "443", "https://kubernetes.default.svc:443", ""},
		{"http", "10.96.0.1", "443", "", `KUBERNETES_SERVICE_PROTOCOL: "http" must be https`},
		{"", "", "443", "", "KUBERNETES_SERVICE_HOST: must be the address of the API server"},
		{"", "", "x", "", "KUBERNETES_SERVICE_PORT: \"x\" is not a port (1-65535)"},
		{"", "a", "0", "", "KUBERNETES_SERVICE_PORT: \"0\""},
		{"", "a", "65536", "", "KUBERNETES_SERVICE_PORT: \"65536\""},
	} {
		env := map[string]string{
			"KUBERNETES_SERVICE_PROTOCOL": row.protocol, "KUBERNETES_SERVICE_HOST": row.host,
			"KUBERNETES_SERVICE_PORT": row.port,
		}
		url, err := token.ServerURL(func(name string) string { return env[name] })
		if url != row.url || (err != nil) != (row.text != "") ||
			err != nil && !strings.Contains(err.Error(), row.text) {
			t.Errorf("%v: %q, %v", row, url, err)
		}
	}
}

// The agents of a cluster may start together, and do not send their requests together for that.
func TestPublishersThatStartTogetherAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 20
		var worlds []*world
		for range many {
			worlds = append(worlds, start(t, func(w *world) { w.issues(4 * time.Hour) }))
		}
		later(time.Hour)
		checks, renewals := map[time.Time]bool{}, map[time.Time]bool{}
		for _, w := range worlds {
			requests := w.server.Requests()
			checks[requests[len(requests)-1].Time.Truncate(time.Second)] = true
		}
		later(time.Hour + time.Minute)
		for _, w := range worlds {
			renewals[w.Status().IssuedAt.Truncate(time.Second)] = true
		}
		if len(checks) < many/2 || len(renewals) < many/2 {
			t.Errorf("%d agents send requests in %d and renew tokens in %d different seconds", many,
				len(checks), len(renewals))
		}
	})
}
