package token_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// TestPublishedTokenStaysIfTheNextIsInvalid checks that the published token stays if the next token
// is invalid, or cannot be obtained or checked.
func TestPublishedTokenStaysIfTheNextIsInvalid(t *testing.T) {
	for _, row := range []struct {
		name       string
		prepare    func(env *testEnv)
		problem    string
		isRejected bool
	}{
		{"a projected token that the API server rejects", func(env *testEnv) {
			env.write(env.options.TokenFile, jwt(2*time.Hour))
		}, "request a token: the API server answers 401: it does not accept the projected token", true},
		{"a token that cannot be requested", func(env *testEnv) {
			env.project(jwt(2 * time.Hour))
			env.server.Always(apiservertest.InternalError())
		}, "token not published, because it cannot be checked: API server memory.test:443: it answers 500", false},
		{"an issued token that the API server rejects", func(env *testEnv) {
			env.server.Issue(func(int64) (string, time.Time) { return jwt(time.Hour), time.Now() })
			env.project(jwt(2 * time.Hour))
			later(time.Nanosecond)
		}, "token not published: API server memory.test:443: it answers 401: it does not accept the token of kubeconfig ", true},
		{"an empty file", func(env *testEnv) {
			env.write(env.options.TokenFile, "")
		}, "contains no valid token", false},
		{"a file without a token", func(env *testEnv) {
			env.write(env.options.TokenFile, "a b\nc")
		}, "contains no valid token", false},
		{"a missing file", func(env *testEnv) {
			_ = os.Remove(env.options.TokenFile)
		}, "no such file", false},
		{"an incomplete authority", func(env *testEnv) {
			env.write(env.options.CAFile, "-----BEGIN")
		}, "contains no PEM certificate", false},
		{"a missing authority", func(env *testEnv) {
			_ = os.Remove(env.options.CAFile)
		}, "certificate authority: ", false},
		{"another authority", func(env *testEnv) {
			env.write(env.options.CAFile, string(apiservertest.OtherCA()))
		}, "token not published, because it cannot be checked", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := start(t, nil)
				before, _ := os.ReadFile(env.options.Kubeconfig)
				later(time.Minute)
				row.prepare(env)
				later(12 * time.Second)
				s := env.Status()
				env.checkProblem(row.problem)
				if (s.Rejected > 0) != row.isRejected || (s.Failed > 0) == row.isRejected ||
					!s.Usable(time.Now()) || s.Published != 1 {
					t.Errorf("status %+v, want the first token and one counted failure", s)
				}
				if after, err := os.ReadFile(env.options.Kubeconfig); err != nil ||
					string(after) != string(before) {
					t.Errorf("kubeconfig %s, error %v, want an unchanged kubeconfig", after, err)
				}
				// The next valid token is published.
				env.server.Always(apiservertest.Normal())
				env.server.Issue(nil)
				env.write(env.options.CAFile, string(env.server.CA()))
				env.project(jwt(3 * time.Hour))
				later(time.Minute)
				env.checkProblem("")
				if s := env.Status(); s.Published != 2 {
					t.Errorf("status %+v, want the second token", s)
				}
			})
		})
	}
}

func TestTokensAreTestedBeforePublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(env *testEnv) { env.server.Always(apiservertest.InternalError()) })
		if _, text := env.published(); text != "" || env.Status().Usable(time.Now()) ||
			env.Status().Age(time.Now()) != 0 {
			t.Errorf("published %q, status %+v, want no token", text, env.Status())
		}
		env.checkProblem("cannot be checked")
		env.server.Always(apiservertest.Normal())
		later(time.Second)
		if !env.Status().Usable(time.Now()) {
			t.Errorf("status %+v, want a published token after a second", env.Status())
		}
	})
}

// TestATokenWithoutPermissionsIsPublished checks that the token of a service account without
// permission to read pods is published, but not usable until the permission is granted.
func TestATokenWithoutPermissionsIsPublished(t *testing.T) {
	const answer = `it answers 403: "pods \"web\" is forbidden: User \"system:serviceaccount:sluice-system:sluice-cni\" cannot get resource \"pods\"`
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(env *testEnv) { env.server.Always(apiservertest.Forbidden()) })
		if _, text := env.published(); text == "" {
			t.Error("the token is not published")
		}
		env.checkProblem("")
		s := env.Status()
		if s.Usable(time.Now()) || s.Forbidden == nil ||
			!strings.Contains(s.Forbidden.Error(), answer) {
			t.Errorf("status %+v, want an unusable token and the API server's message", s)
		}
		// An outage of the API server does not mean that the permission was granted.
		env.server.Always(apiservertest.Reset())
		later(time.Minute)
		if s := env.Status(); s.Usable(time.Now()) || s.Forbidden == nil {
			t.Errorf("status %+v during an outage, want the missing permission", s)
		}
		env.server.Always(apiservertest.Normal())
		later(5 * time.Second)
		if s := env.Status(); !s.Usable(time.Now()) || s.Forbidden != nil || s.Published != 1 {
			t.Errorf("status %+v, want the first token to be usable", s)
		}
		// The permission may be revoked too.
		env.server.Always(apiservertest.Forbidden())
		later(10 * time.Minute)
		if s := env.Status(); s.Usable(time.Now()) {
			t.Errorf("status %+v, want an unusable token", s)
		}
	})
}

// TestPermissionForNamespacesIsOnlyRequiredIfNeeded covers selectors that need the labels of
// namespaces. With such a selector the permission to read pods is not sufficient.
func TestPermissionForNamespacesIsOnlyRequiredIfNeeded(t *testing.T) {
	for _, needed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			env := start(t, func(env *testEnv) {
				env.options.Namespaces = needed
				// The first requests are for a token, for pods and for namespaces.
				env.server.Next(apiservertest.Forbidden(), apiservertest.Normal(),
					apiservertest.Forbidden())
			})
			s := env.Status()
			if s.Usable(time.Now()) == needed ||
				needed && !strings.HasPrefix(s.Forbidden.Error(), "namespace default: ") {
				t.Errorf("namespaces needed %v: status %+v, want usable %v", needed, s, !needed)
			}
			later(5 * time.Second)
			if s := env.Status(); !s.Usable(time.Now()) {
				t.Errorf("namespaces needed %v: status %+v, want a usable token after 5 s", needed, s)
			}
		})
	}
}

// TestTokenIsUnusableDuringAnOutage checks that the token is unusable while the API server does not
// answer. Outages of less than half a minute are tolerated, because the start of a pod tolerates
// them too.
func TestTokenIsUnusableDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(env *testEnv) { env.options.CheckInterval = 30 * time.Second })
		checkUsable := func(description string, want bool) {
			t.Helper()
			if s := env.Status(); s.Usable(time.Now()) != want {
				t.Errorf("%s: usable %t, want %t: %+v", description, !want, want, s)
			}
		}
		for range 10 {
			env.server.Always(apiservertest.Reset())
			later(25 * time.Second)
			checkUsable("after a short outage", true)
			env.server.Always(apiservertest.Normal())
			later(5 * time.Second)
			if err := env.Status().Unavailable; err != nil {
				t.Errorf("5 s after the outage: error %v of the last check, want none", err)
			}
		}
		for name, behavior := range map[string]apiservertest.Behavior{
			"gone": apiservertest.Reset(), "broken": apiservertest.InternalError(),
		} {
			env.server.Always(behavior)
			later(65 * time.Second)
			checkUsable("a minute after the API server was "+name, false)
			if s := env.Status(); s.Unavailable == nil || s.Problem != nil || s.Published != 1 {
				t.Errorf("status %+v, want the first token, unavailable and without a problem", s)
			}
			env.server.Always(apiservertest.Normal())
			later(5 * time.Second)
			checkUsable("when the API server is available again", true)
		}
	})
}

// TestARevokedTokenIsReplaced checks that a token that the API server no longer accepts is
// replaced if possible, and otherwise kept and reported.
func TestARevokedTokenIsReplaced(t *testing.T) {
	t.Run("without a replacement", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			env := start(t, nil)
			before, _ := os.ReadFile(env.options.Kubeconfig)
			env.server.SetToken("another")
			later(11 * time.Minute)
			env.checkProblem("it answers 401")
			s := env.Status()
			if after, _ := os.ReadFile(env.options.Kubeconfig); string(after) != string(before) ||
				s.Usable(time.Now()) || !s.Revoked {
				t.Errorf("status %+v, want the same kubeconfig with a revoked token", s)
			}
			env.project(jwt(time.Hour))
			later(time.Minute)
			env.checkProblem("")
			if s := env.Status(); !s.Usable(time.Now()) {
				t.Errorf("status %+v, want a usable token", s)
			}
		})
	})
	t.Run("while no token can be requested", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			env := start(t, func(env *testEnv) { env.issueTokens(24 * time.Hour) })
			later(time.Minute)
			projected, err := os.ReadFile(env.options.TokenFile)
			if err != nil {
				t.Fatal(err)
			}
			env.server.SetToken(strings.TrimSpace(string(projected))) // and accept no other token
			// The first requests check the published token and request the next one.
			env.server.Next(apiservertest.Normal(), apiservertest.InternalError())
			later(10 * time.Minute)
			if s := env.Status(); s.Origin != token.Projected || !s.Usable(time.Now()) {
				t.Errorf("status %+v, want the projected token", s)
			}
			later(11 * time.Minute)
			if s := env.Status(); s.Origin != token.Requested || !s.Usable(time.Now()) {
				t.Errorf("status %+v, want a requested token after 11 min", s)
			}
		})
	})
	t.Run("with a replacement", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			env := start(t, func(env *testEnv) { env.issueTokens(100 * time.Hour) })
			projected := jwt(time.Hour)
			later(time.Minute)
			env.server.SetToken(projected) // and accept no other token
			env.issueTokens(200 * time.Hour)
			later(10 * time.Minute)
			env.checkProblem("")
			if s := env.Status(); !s.Usable(time.Now()) || s.Published != 2 {
				t.Errorf("status %+v, want a usable second token", s)
			}
		})
	})
}

func TestChangedKubeconfigIsRestored(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"another content": func(path string) error {
			return os.WriteFile(path, []byte("{}"), 0o600)
		},
		"another mode": func(path string) error { return os.Chmod(path, 0o644) },
		"no file":      os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := start(t, nil)
				before, _ := os.ReadFile(env.options.Kubeconfig)
				// The kubeconfig is restored without the API server.
				env.server.Always(apiservertest.InternalError())
				if err := change(env.options.Kubeconfig); err != nil {
					t.Fatal(err)
				}
				later(11 * time.Second)
				after, _ := os.ReadFile(env.options.Kubeconfig)
				if info, err := os.Stat(env.options.Kubeconfig); err != nil || info.Mode() != 0o600 ||
					string(after) != string(before) {
					t.Errorf("the kubeconfig is not restored: %v, error %v", info, err)
				}
			})
		})
	}
}

func TestDirectoryThatCannotBeWrittenIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t, func(env *testEnv) { env.options.Kubeconfig += "/no/kubeconfig" })
		env.checkProblem("write " + env.options.Kubeconfig)
		if s := env.Status(); s.Usable(time.Now()) || s.Failed == 0 {
			t.Errorf("status %+v, want no token and counted failures", s)
		}
	})
}
