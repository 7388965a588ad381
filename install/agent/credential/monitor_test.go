package credential

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pod is the pod of an agent: the files that the kubelet projects, and the run directory of the
// node.
type pod struct {
	t   *testing.T
	dir string
}

func newPod(t *testing.T) *pod {
	p := &pod{t, t.TempDir()}
	p.project("token", "first")
	p.project("ca.crt", string(apiservertest.OtherCA()))
	return p
}

func (p *pod) project(name, content string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// start starts a monitor. The result of its Run is sent to the channel.
func (p *pod) start() (*Monitor, <-chan error) {
	p.t.Helper()
	m := New(Options{
		TokenFile: filepath.Join(p.dir, "token"), CAFile: filepath.Join(p.dir, "ca.crt"),
		Record: filepath.Join(p.dir, "exits.json"),
	})
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return m, done
}

// timeToExit sends a request each second, which the API server answers with the code. It returns
// the time after which the monitor ends, and the monitor's error; or longest and nil if the monitor
// does not end within this time.
func timeToExit(
	m *Monitor, done <-chan error, token string, code int, longest time.Duration,
) (time.Duration, error) {
	begin := time.Now()
	for time.Since(begin) < longest {
		m.RecordResponse(token, code, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case err := <-done:
			return time.Since(begin), err
		default:
		}
	}
	return longest, nil
}

// TestExitsWhenTheKubeletShouldHaveReplacedTheToken covers the kubelet's behavior: it replaces a
// token after 80 % of its lifetime, and checks the pod every 60 to 90 s. The monitor therefore ends
// two minutes after 80 % of the lifetime, or after the rejection if that is later.
func TestExitsWhenTheKubeletShouldHaveReplacedTheToken(t *testing.T) {
	for _, row := range []struct {
		name          string
		age, lifetime time.Duration
		want          time.Duration
	}{
		{"a new token of ten minutes", 0, 10 * time.Minute, 10 * time.Minute},
		{
			"a token that should be replaced within a minute", 7 * time.Minute, 10 * time.Minute,
			3 * time.Minute,
		},
		{"a token that should have been replaced", time.Hour, 10 * time.Minute, 2 * time.Minute},
		{
			"a token of an hour whose expiry the API server extends to a year", 0,
			365 * 24 * time.Hour, 50 * time.Minute,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				issued := time.Now().Add(-row.age)
				token := apiservertest.JWT("system:serviceaccount:a:b", issued,
					issued.Add(row.lifetime))
				p := newPod(t)
				p.project("token", token+"\n")
				m, done := p.start()
				elapsed, err := timeToExit(m, done, token, 401, 2*time.Hour)
				if err == nil || elapsed < row.want || elapsed > row.want+pollInterval+time.Second {
					t.Errorf("the monitor ended after %v with %v, want an error after %v", elapsed, err,
						row.want)
				}
				if n, reason := m.Exits(); n != 1 || !strings.Contains(reason, "401") {
					t.Errorf("%d exits are recorded, the last because of %q; want 1 because of 401", n,
						reason)
				}
			})
		})
	}
}

// TestExitsBackOff checks that the delays between exits double across restarts, up to an hour, and
// are reset after a token was accepted for an hour.
func TestExitsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t)
		expired := apiservertest.JWT("system:serviceaccount:a:b", time.Now().Add(-24*time.Hour),
			time.Now().Add(-23*time.Hour))
		p.project("token", expired)
		// The delays double from one minute on. The kubelet always has at least two minutes.
		for i, want := range []time.Duration{2, 2, 2, 4, 8, 16, 32, 60, 60} {
			m, done := p.start()
			elapsed, err := timeToExit(m, done, expired, 401, 2*time.Hour)
			if want *= time.Minute; err == nil || elapsed < want || elapsed > want+pollInterval+time.Second {
				t.Errorf("exit %d after %v with %v, want an error after %v", i+1, elapsed, err, want)
			}
		}
		m, done := p.start()
		if elapsed, err := timeToExit(m, done, expired, 200, 3*time.Hour); elapsed < 3*time.Hour {
			t.Errorf("the monitor ends after %v although the token is accepted: %v", elapsed, err)
		}
		if n, _ := m.Exits(); n != 0 {
			t.Errorf("%d exits are still recorded, want 0", n)
		}
	})
}

// TestTokenThatIsReplacedInTime checks that only the rejection of the currently projected token
// counts.
func TestTokenThatIsReplacedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t)
		m, done := p.start()
		m.RecordResponse("an older token", 401, nil)
		if s := m.Status(); s.Problem != nil {
			t.Errorf("after the rejection of a replaced token the problem is %v, want none", s.Problem)
		}
		m.RecordResponse("first", 401, nil)
		if s := m.Status(); s.Problem == nil || !s.Since.Equal(time.Now()) {
			t.Errorf("after the rejection of the projected token the status is %+v, want a problem since now", s)
		}
		p.project("token", "second")
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("the monitor ends although there is another token: %v", err)
		default:
		}
		m.RecordResponse("second", 403, nil) // a permission may be missing, but the token is accepted
		if s := m.Status(); s.Problem != nil || !s.Accepted {
			t.Errorf("after the next token was accepted the status is %+v, want no problem", s)
		}
	})
}

// TestNoAnswerIsNoRejection checks that an unavailable API server does not count as a rejection of
// the token, and that an API server with an unknown certificate authority does not end the monitor:
// a restart would not help.
func TestNoAnswerIsNoRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, done := newPod(t).start()
		m.RecordResponse("first", 0, errors.New("connection refused"))
		if s := m.Status(); s != (Status{}) {
			t.Errorf("after a refused connection the status is %+v, want the zero value", s)
		}
		m.RecordResponse("first", 0,
			&tls.CertificateVerificationError{Err: errors.New("unknown authority")})
		if s := m.Status(); s.Problem == nil ||
			!strings.Contains(s.Problem.Error(), "unknown authority") {
			t.Errorf("with an unknown certificate authority the status is %+v, want the problem", s)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("the monitor ends although a restart would not help: %v", err)
		default:
		}
	})
}
