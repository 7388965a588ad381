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

func TestPublishedKubeconfigIsUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, nil)
		cluster, text := env.published()
		want := map[string]any{
			"server": env.server.URL(), "certificate-authority-data": inBase64(env.server.CA()),
		}
		if d := cmp.Diff(want, cluster); d != "" || text != jwt(time.Hour) {
			t.Errorf("token %q, want the projected one; cluster (-want +got)\n%s", text, d)
		}
		if info, err := os.Stat(env.options.Kubeconfig); err != nil || info.Mode() != 0o600 {
			t.Errorf("kubeconfig: %v, error %v, want mode 0600", info, err)
		}
		wantStatus := token.Status{
			Origin: token.Projected, PublishedAt: time.Now(), IssuedAt: time.Now(),
			Expiry: time.Now().Add(time.Hour), Published: 1,
			PermissionsKnown: true,
		}
		if d := cmp.Diff(wantStatus, env.Status()); d != "" {
			t.Errorf("status (-want +got)\n%s", d)
		}
		// The plugin can use the kubeconfig.
		api := source.NewAPIServer(source.Options{
			Kubeconfig: env.options.Kubeconfig, Dial: env.server.Dial,
		})
		defer api.Close()
		if err := api.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestKubeconfigHasTheConfiguredMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(env *testEnv) {
			env.options.Mode, env.options.SkipTLSVerify, env.options.CAFile = 0o640, true, ""
		})
		cluster, _ := env.published()
		if d := cmp.Diff(map[string]any{"server": env.server.URL(), "insecure-skip-tls-verify": true},
			cluster); d != "" {
			t.Errorf("cluster (-want +got)\n%s", d)
		}
		if info, err := os.Stat(env.options.Kubeconfig); err != nil || info.Mode() != 0o640 {
			t.Errorf("kubeconfig: %v, error %v, want mode 0640", info, err)
		}
	})
}

// TestRequestedTokensAreRenewed checks that tokens are requested with the configured lifetime, and
// are renewed after three eighths to half of the lifetime that the API server assigns.
func TestRequestedTokensAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lifetimes []int64
		env := start(t, func(env *testEnv) {
			env.options.Lifetime = 10 * time.Hour
			env.server.Issue(func(seconds int64) (string, time.Time) {
				lifetimes = append(lifetimes, seconds)
				text := jwt(4 * time.Hour) // the API server issues a shorter lifetime
				env.server.AddToken(text)
				return text, time.Now().Add(4 * time.Hour)
			})
		})
		for range 3 {
			s := env.Status()
			if s.Origin != token.Requested || s.Problem != nil ||
				s.Expiry.Sub(s.IssuedAt) != 4*time.Hour {
				t.Fatalf("status %+v, want a requested token with a lifetime of 4h", s)
			}
			later(time.Until(s.IssuedAt.Add(90*time.Minute - time.Second)))
			if got := env.Status(); got != s || got.Age(time.Now()) != 90*time.Minute-time.Second {
				t.Fatalf("status %+v, want the unrenewed token 90 min after its issue", got)
			}
			later(30*time.Minute + 21*time.Second)
			if got := env.Status(); got.Published != s.Published+1 || !got.Usable(time.Now()) {
				t.Fatalf("status %+v, want a renewed token", got)
			}
		}
		if d := cmp.Diff([]int64{36000, 36000, 36000, 36000}, lifetimes); d != "" {
			t.Errorf("requested lifetimes in seconds (-want +got)\n%s", d)
		}
	})
}

func TestProjectedTokensAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, nil)
		_, first := env.published()
		later(48 * time.Minute)
		env.project(jwt(time.Hour))
		later(11 * time.Second)
		_, second := env.published()
		if s := env.Status(); first == second || s.Published != 2 || s.Problem != nil ||
			!s.Usable(time.Now()) {
			t.Errorf("status %+v, want a usable second token", s)
		}
	})
}

// TestProjectedTokensAreFollowedWhileNoTokenCanBeRequested checks that a failed request does not
// delay the publication of the next projected token. The tokens that the chart projects expire
// after ten minutes.
func TestProjectedTokensAreFollowedWhileNoTokenCanBeRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, nil)
		_, first := env.published()
		later(time.Minute)
		env.project(jwt(time.Hour))
		env.server.Issue(func(int64) (string, time.Time) { return "", time.Now() }) // no token
		later(11 * time.Second)
		_, second := env.published()
		if s := env.Status(); first == second || s.Origin != token.Projected || s.Problem != nil ||
			!s.Usable(time.Now()) {
			t.Errorf("status %+v, want the second projected token", s)
		}
	})
}

// TestTokensAreRequestedAfterThePermissionIsGranted covers a permission to request tokens that is
// granted after the start of the agent.
func TestTokensAreRequestedAfterThePermissionIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, nil)
		env.issueTokens(24 * time.Hour)
		later(11 * time.Minute)
		if s := env.Status(); s.Origin != token.Requested || s.Problem != nil {
			t.Errorf("status %+v, want a requested token", s)
		}
	})
}

// TestUsableStaysTrueOverRotations checks that readiness does not change during rotations of
// tokens.
func TestUsableStaysTrueOverRotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(env *testEnv) {
			env.options.Changed = func(s token.Status) {
				if s.Published > 0 && !s.Usable(time.Now()) {
					t.Errorf("status %+v, want a usable token", s)
				}
			}
		})
		for range 20 {
			later(30 * time.Minute)
			env.project(jwt(time.Hour))
		}
		later(time.Minute)
		if s := env.Status(); s.Published != 21 || s.Failed+s.Rejected > 0 {
			t.Errorf("status %+v, want 21 published tokens without a failure", s)
		}
	})
}

// TestNewCertificateAuthorityDoesNotExtendTheLifetime checks that writing the same token again, with
// a changed certificate authority, does not make the token count as usable for longer.
func TestNewCertificateAuthorityDoesNotExtendTheLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(env *testEnv) { env.issueTokens(24 * time.Hour) })
		expiry := time.Now().Add(24 * time.Hour)
		later(time.Hour)
		env.write(env.options.CAFile, strings.Repeat(string(env.server.CA()), 2))
		later(time.Minute)
		s := env.Status()
		if s.Published != 2 || s.Problem != nil {
			t.Fatalf("status %+v, want the same token published again", s)
		}
		if !s.Usable(expiry.Add(-time.Minute)) || s.Usable(expiry.Add(time.Minute)) {
			t.Errorf("status %+v, want a token that is usable until %s", s, expiry)
		}
	})
}

var errAny = errors.New("any")

// unavailableSince returns a status in which the API server has not answered since the given time.
func unavailableSince(since time.Time) token.Status {
	return token.Status{Origin: token.Projected, Unavailable: errAny, UnavailableSince: since}
}

func TestUsable(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		name   string
		status token.Status
		usable bool
	}{
		{"nothing was published yet", token.Status{}, false},
		{
			"the token has not expired",
			token.Status{Origin: token.Projected, Expiry: now.Add(time.Second)},
			true,
		},
		{"the token has expired", token.Status{Origin: token.Projected, Expiry: now}, false},
		{"the token does not expire", token.Status{Origin: token.Projected}, true},
		{"the token is revoked", token.Status{Origin: token.Projected, Revoked: true}, false},
		{
			"the permission to read pods is missing",
			token.Status{Origin: token.Projected, Forbidden: errAny},
			false,
		},
		{"the API server is unavailable for a short time", unavailableSince(now.Add(-30*time.Second + 1)), true},
		{"the API server is unavailable for a longer time", unavailableSince(now.Add(-30 * time.Second)), false},
		{
			"the next token is invalid",
			token.Status{Origin: token.Projected, Problem: errAny},
			true,
		},
	} {
		if row.status.Usable(now) != row.usable {
			t.Errorf("%s: usable %t, want %t", row.name, !row.usable, row.usable)
		}
	}
	if age := (token.Status{
		Origin: token.Projected, PublishedAt: now,
	}).Age(now.Add(time.Second)); age != time.Second {
		t.Errorf("the age of a token without a time of issue is %v, want 1s since publication", age)
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
		variables := map[string]string{
			"KUBERNETES_SERVICE_PROTOCOL": row.protocol, "KUBERNETES_SERVICE_HOST": row.host,
			"KUBERNETES_SERVICE_PORT": row.port,
		}
		url, err := token.ServerURL(func(name string) string { return variables[name] })
		if url != row.url || (err != nil) != (row.text != "") ||
			err != nil && !strings.Contains(err.Error(), row.text) {
			t.Errorf("%v: URL %q, error %v, want URL %q, error with %q", variables, url, err, row.url,
				row.text)
		}
	}
}

// TestPublishersThatStartTogetherAreSpread checks that the agents of a cluster that start together
// do not send their requests at the same time.
func TestPublishersThatStartTogetherAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 20
		var publishers []*testEnv
		for range agents {
			publishers = append(publishers, start(t, func(env *testEnv) { env.issueTokens(4 * time.Hour) }))
		}
		later(time.Hour)
		checks, renewals := map[time.Time]bool{}, map[time.Time]bool{}
		for _, env := range publishers {
			requests := env.server.Requests()
			checks[requests[len(requests)-1].Time.Truncate(time.Second)] = true
		}
		later(time.Hour + time.Minute)
		for _, env := range publishers {
			renewals[env.Status().IssuedAt.Truncate(time.Second)] = true
		}
		if len(checks) < agents/2 || len(renewals) < agents/2 {
			t.Errorf("%d agents check tokens in %d and renew tokens in %d different seconds, want at least %d",
				agents, len(checks), len(renewals), agents/2)
		}
	})
}
