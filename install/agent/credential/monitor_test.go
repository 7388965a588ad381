package credential

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pod simulates the agent's pod. dir contains the files that the kubelet projects, and the record
// of exits.
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

// start starts a monitor. The channel receives the result of its Run.
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

// timeToExit records a response with the code each second. It returns the time until the monitor
// ends, and the monitor's error, or longest and nil if the monitor does not end within longest.
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
		{"a new token that is valid for ten minutes", 0, 10 * time.Minute, 10 * time.Minute},
		{
			"a token that should be replaced within a minute", 7 * time.Minute, 10 * time.Minute,
			3 * time.Minute,
		},
		{"a token that should have been replaced", time.Hour, 10 * time.Minute, 2 * time.Minute},
		{
			"a new token whose expiry the API server has extended from an hour to a year", 0,
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
		// The delays double from one minute, but the kubelet always has at least two minutes to
		// replace the token.
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

// TestOnlyRejectionsOfTheCurrentTokenCount checks that only the rejection of the currently
// projected token counts.
func TestOnlyRejectionsOfTheCurrentTokenCount(t *testing.T) {
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
			t.Errorf("the monitor ends although there is a new token: %v", err)
		default:
		}
		m.RecordResponse("second", 403, nil) // a permission may be missing, but the token is accepted
		if s := m.Status(); s.Problem != nil || !s.Accepted {
			t.Errorf("after the next token was accepted the status is %+v, want no problem", s)
		}
	})
}

// TestUnavailableAPIServerDoesNotEndTheMonitor checks that an unavailable API server does not count
// as a rejection of the token, and that an API server with an unknown certificate authority does
// not end the monitor: a restart would not help.
func TestUnavailableAPIServerDoesNotEndTheMonitor(t *testing.T) {
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

// TestErrorsBeforeAuthenticationDoNotAcceptTheToken checks that replies that the API server or a
// load balancer sends before the token is authenticated do not count as its acceptance, and do not
// clear an earlier rejection. Replies after the authentication count as acceptance.
func TestErrorsBeforeAuthenticationDoNotAcceptTheToken(t *testing.T) {
	for _, code := range []int{302, 400, 404, 408, 429, 500, 502, 503, 504} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t)
				m, _ := p.start()
				reports := 0
				m.options.Changed = func(Status) { reports++ }
				m.RecordResponse("first", code, nil)
				if s := m.Status(); s != (Status{}) {
					t.Errorf("after a first reply with code %d the status is %+v, want the zero value", code, s)
				}
				m.RecordResponse("first", 401, nil)
				rejected := m.Status()
				for _, next := range []int{code, 401} {
					time.Sleep(time.Second)
					m.RecordResponse("first", next, nil)
					if s := m.Status(); fmt.Sprint(s) != fmt.Sprint(rejected) || reports != 1 {
						t.Errorf("replies 401, %d, 401: status %+v and %d reports after %d, want %+v and 1", code, s,
							reports, next, rejected)
					}
				}
			})
		})
	}
	for _, code := range []int{200, 201, 403, 409, 410, 422} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := newPod(t).start()
				m.RecordResponse("first", code, nil)
				if s := m.Status(); !s.Accepted || s.Problem != nil {
					t.Errorf("after a reply with code %d the status is %+v, want accepted", code, s)
				}
			})
		})
	}
}

// TestChangesAreReportedInOrder checks that a change that happens while an earlier change is being
// reported is reported afterwards.
func TestChangesAreReportedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t)
		m, _ := p.start()
		var reports []bool // whether the token is rejected
		m.options.Changed = func(s Status) {
			if s.Problem != nil {
				accepted := make(chan struct{})
				go func() {
					m.RecordResponse("first", 200, nil)
					close(accepted)
				}()
				<-accepted
			}
			reports = append(reports, s.Problem != nil)
		}
		m.RecordResponse("first", 401, nil)
		if want := []bool{true, false}; !slices.Equal(reports, want) {
			t.Errorf("reported rejections: %v, want %v", reports, want)
		}
	})
}

// TestTimesInTheFutureDoNotPreventAnExit covers a node's clock that was set back: the last exit or
// the issue of the token is in the future.
func TestTimesInTheFutureDoNotPreventAnExit(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, row := range []struct {
		name     string
		lastExit time.Duration // relative to now
		issued   time.Duration
		want     time.Duration
	}{
		{"the last exit is in the future", year, -24 * time.Hour, 2 * time.Minute},
		{"the token was issued in the future", -24 * time.Hour, year, 10 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				token := apiservertest.JWT("system:serviceaccount:a:b", time.Now().Add(row.issued),
					time.Now().Add(row.issued+10*time.Minute))
				p := newPod(t)
				p.project("token", token)
				last := exits{Count: 1, Last: time.Now().Add(row.lastExit)}
				if err := last.store(filepath.Join(p.dir, "exits.json")); err != nil {
					t.Fatal(err)
				}
				m, done := p.start()
				elapsed, err := timeToExit(m, done, token, 401, 2*time.Hour)
				if err == nil || elapsed < row.want || elapsed > row.want+pollInterval+time.Second {
					t.Errorf("the monitor ended after %v with %v, want an error after %v", elapsed, err,
						row.want)
				}
			})
		})
	}
}
