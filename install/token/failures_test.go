package token_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// A new token that is no good does not get instead of one that is.
func TestTokensThatAreNotPublished(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(w *world)
		problem string
		refused bool
	}{
		{"one that the API server refuses", func(w *world) {
			w.write(w.options.TokenFile, jwt(2*time.Hour))
		}, "request a token: the API server answers 401: it does not accept the projected token", true},
		{"one that cannot be tried", func(w *world) {
			w.project(jwt(2 * time.Hour))
			w.server.Always(apiservertest.InternalError())
		}, "request a token: the API server answers 500", false},
		{"one that was issued, but is refused", func(w *world) {
			w.server.Issue(func(int64) (string, time.Time) { return jwt(time.Hour), time.Now() })
			w.project(jwt(2 * time.Hour))
			later(time.Nanosecond)
		}, "token not published: API server memory.test:443: it answers 401: it does not accept the token of kubeconfig ", true},
		{"one that is empty", func(w *world) {
			w.write(w.options.TokenFile, "")
		}, "contains no valid token", false},
		{"one that is none", func(w *world) {
			w.write(w.options.TokenFile, "a b\nc")
		}, "contains no valid token", false},
		{"one that is not there", func(w *world) {
			_ = os.Remove(w.options.TokenFile)
		}, "no such file", false},
		{"one of half of an authority", func(w *world) {
			w.write(w.options.CAFile, "-----BEGIN")
		}, "contains no PEM certificate", false},
		{"one with an authority that is gone", func(w *world) {
			_ = os.Remove(w.options.CAFile)
		}, "certificate authority: ", false},
		{"one with another authority", func(w *world) {
			w.write(w.options.CAFile, string(apiservertest.OtherCA()))
		}, "token not published, because it cannot be checked", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, nil)
				before, _ := os.ReadFile(w.options.Kubeconfig)
				later(time.Minute)
				row.prepare(w)
				later(12 * time.Second)
				s := w.Status()
				w.checkProblem(row.problem)
				if (s.Refused > 0) != row.refused || (s.Failed > 0) == row.refused ||
					!s.Usable(time.Now()) || s.Published != 1 {
					t.Errorf("%+v", s)
				}
				if after, err := os.ReadFile(w.options.Kubeconfig); err != nil ||
					string(after) != string(before) {
					t.Errorf("another kubeconfig, or %v", err)
				}
				// When the trouble is over, all is well.
				w.server.Always(apiservertest.Normal())
				w.server.Issue(nil)
				w.write(w.options.CAFile, string(w.server.CA()))
				w.project(jwt(3 * time.Hour))
				later(time.Minute)
				w.checkProblem("")
				if s := w.Status(); s.Published != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestTokensAreTestedBeforePublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) { w.server.Always(apiservertest.InternalError()) })
		if _, text := w.published(); text != "" || w.Status().Usable(time.Now()) ||
			w.Status().Age(time.Now()) != 0 {
			t.Errorf("%+v", w.Status())
		}
		w.checkProblem("cannot be checked")
		w.server.Always(apiservertest.Normal())
		later(time.Second)
		if !w.Status().Usable(time.Now()) {
			t.Errorf("not tried again within a second: %+v", w.Status())
		}
	})
}

// A service account that may read no pods is a matter of rights that may come: its token is
// published, but of no use until they do.
func TestATokenWithoutRights(t *testing.T) {
	const answer = `it answers 403: "pods \"web\" is forbidden: User \"system:serviceaccount:sluice-system:sluice-cni\" cannot get resource \"pods\"`
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) { w.server.Always(apiservertest.Forbidden()) })
		if _, text := w.published(); text == "" {
			t.Error("not published")
		}
		w.checkProblem("")
		s := w.Status()
		if s.Usable(time.Now()) || s.Forbidden == nil ||
			!strings.Contains(s.Forbidden.Error(), answer) {
			t.Errorf("%+v", s)
		}
		// That the API server is away is no sign that the right has come.
		w.server.Always(apiservertest.Reset())
		later(time.Minute)
		if s := w.Status(); s.Usable(time.Now()) || s.Forbidden == nil {
			t.Errorf("%+v", s)
		}
		w.server.Always(apiservertest.Normal())
		later(5 * time.Second)
		if s := w.Status(); !s.Usable(time.Now()) || s.Forbidden != nil || s.Published != 1 {
			t.Errorf("%+v", s)
		}
		// Rights may be taken away as well.
		w.server.Always(apiservertest.Forbidden())
		later(10 * time.Minute)
		if s := w.Status(); s.Usable(time.Now()) {
			t.Errorf("%+v", s)
		}
	})
}

// Where a selector asks for labels of namespaces, pods alone are not enough.
func TestATokenWithoutTheRightToNamespaces(t *testing.T) {
	for _, needed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, func(w *world) {
				w.options.Namespaces = needed
				// a token, pods, namespaces
				w.server.Next(apiservertest.Forbidden(), apiservertest.Normal(),
					apiservertest.Forbidden())
			})
			s := w.Status()
			if s.Usable(time.Now()) == needed ||
				needed && !strings.HasPrefix(s.Forbidden.Error(), "namespace default: ") {
				t.Errorf("needed %v: %+v", needed, s)
			}
			later(5 * time.Second)
			if s := w.Status(); !s.Usable(time.Now()) {
				t.Errorf("needed %v: %+v", needed, s)
			}
		})
	}
}

// What does not answer when it is tried is no way to pods, but an outage that a pod's start
// outlasts does not count.
func TestUnavailableAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) { w.options.CheckEvery = 30 * time.Second })
		usable := func(when string, want bool) {
			t.Helper()
			if s := w.Status(); s.Usable(time.Now()) != want {
				t.Errorf("%s: %+v", when, s)
			}
		}
		for range 10 {
			w.server.Always(apiservertest.Reset())
			later(25 * time.Second)
			usable("after a short outage", true)
			w.server.Always(apiservertest.Normal())
			later(5 * time.Second)
			if err := w.Status().Unavailable; err != nil {
				t.Errorf("5 s after the outage: %v", err)
			}
		}
		for name, behaviour := range map[string]apiservertest.Behaviour{
			"gone": apiservertest.Reset(), "broken": apiservertest.InternalError(),
		} {
			w.server.Always(behaviour)
			later(65 * time.Second)
			usable("a minute after it was "+name, false)
			if s := w.Status(); s.Unavailable == nil || s.Problem != nil || s.Published != 1 {
				t.Errorf("%+v", s)
			}
			w.server.Always(apiservertest.Normal())
			later(5 * time.Second)
			usable("when it is back", true)
		}
	})
}

// What the API server does not accept any more is replaced if there is something better, and
// otherwise stays and is told.
func TestAPublishedTokenThatIsRevoked(t *testing.T) {
	t.Run("and cannot be replaced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, nil)
			before, _ := os.ReadFile(w.options.Kubeconfig)
			w.server.SetToken("another")
			later(11 * time.Minute)
			w.checkProblem("it answers 401")
			s := w.Status()
			if after, _ := os.ReadFile(w.options.Kubeconfig); string(after) != string(before) ||
				s.Usable(time.Now()) || !s.Revoked {
				t.Errorf("%+v", s)
			}
			w.project(jwt(time.Hour))
			later(time.Minute)
			w.checkProblem("")
			if s := w.Status(); !s.Usable(time.Now()) {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("and is replaced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, func(w *world) { w.issues(100 * time.Hour) })
			projected := jwt(time.Hour)
			later(time.Minute)
			w.server.SetToken(projected) // and no other
			w.issues(200 * time.Hour)
			later(10 * time.Minute)
			w.checkProblem("")
			if s := w.Status(); !s.Usable(time.Now()) || s.Published != 2 {
				t.Errorf("%+v", s)
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
		"none":         os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, nil)
				before, _ := os.ReadFile(w.options.Kubeconfig)
				// the API server is not needed for it
				w.server.Always(apiservertest.InternalError())
				if err := change(w.options.Kubeconfig); err != nil {
					t.Fatal(err)
				}
				later(11 * time.Second)
				after, _ := os.ReadFile(w.options.Kubeconfig)
				if info, err := os.Stat(w.options.Kubeconfig); err != nil || info.Mode() != 0o600 ||
					string(after) != string(before) {
					t.Errorf("%v, %v", info, err)
				}
			})
		})
	}
}

func TestDirectoryThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) { w.options.Kubeconfig += "/no/kubeconfig" })
		w.checkProblem("write " + w.options.Kubeconfig)
		if s := w.Status(); s.Usable(time.Now()) || s.Failed == 0 {
			t.Errorf("%+v", s)
		}
	})
}
