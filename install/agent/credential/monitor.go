package credential

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/token"
)

const (
	// defaultPatience is more than the 60 to 90 s in which the kubelet looks at each pod once.
	defaultPatience = 2 * time.Minute
	// unknownLife is what a token is taken to live that does not say. The kubelet asks for an hour
	// where the pod asks for nothing.
	unknownLife = time.Hour
	// look is how often the token file is compared with the token that was rejected.
	look = 10 * time.Second
)

// Options of a [Monitor]. TokenFile, CAFile and Record are needed.
type Options struct {
	// TokenFile and CAFile are the paths of the credentials.
	TokenFile, CAFile string
	// Record is the path of the file that counts exits across restarts.
	Record string
	// Changed is called when the credentials begin to be rejected, are rejected for another reason,
	// or are accepted again. It must not wait.
	Changed func(Status)
	// Patience is how long the kubelet has to replace a token that is rejected, from the time on
	// when it should; 2 min if it is 0.
	Patience time.Duration
}

// Status is what the API server makes of the agent's credentials. The zero value is of an agent
// that has not asked yet.
type Status struct {
	// Accepted is set once the API server has accepted the token.
	Accepted bool
	// Problem says that the API server rejects the token, or that its certificate is not trusted,
	// and Since from when on; nil and zero if neither is so, as far as is known.
	Problem error
	Since   time.Time
}

// A Monitor watches the credentials by the outcome of requests. Use [New], and pass
// [Monitor.Outcome] to the client of the API server. It is safe for concurrent use.
type Monitor struct {
	options Options
	wake    chan struct{}

	mu       sync.Mutex
	status   Status
	rejected string // the token that the API server rejects; empty if it rejects none
}

// New returns a monitor.
func New(o Options) *Monitor {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	return &Monitor{options: o, wake: make(chan struct{}, 1)}
}

// Status returns what is known now.
func (m *Monitor) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Exits returns how often agents of this node have exited for want of credentials since these were
// accepted the last time, and why the last of them did.
func (m *Monitor) Exits() (count int, why string) {
	e := loadExits(m.options.Record)
	return e.Count, e.Why
}

// Outcome takes the outcome of a request with a token. The code is 0 if there is no answer.
func (m *Monitor) Outcome(used string, code int, err error) {
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		m.set("", fmt.Errorf("%s does not vouch for the API server's certificate: %w", m.options.CAFile, untrusted.Err))
	case err != nil:
		// An API server that is away says nothing of credentials.
	case code != http.StatusUnauthorized:
		m.set("", nil)
	case used == m.projected():
		m.set(used, errors.New("the API server rejects the agent's service account token (401)"))
	default:
		// A token that has been replaced meanwhile.
	}
}

// projected returns the token in the file; empty if it cannot be read.
func (m *Monitor) projected() string {
	text, _ := apiclient.ReadToken(m.options.TokenFile)
	return text
}

// set takes over what a request has shown, and tells what is new.
func (m *Monitor) set(rejected string, problem error) {
	m.mu.Lock()
	old := m.status
	m.rejected = rejected
	m.status.Problem = problem
	switch {
	case problem == nil:
		m.status.Accepted, m.status.Since = true, time.Time{}
	case old.Problem == nil:
		m.status.Since = time.Now()
	}
	now := m.status
	m.mu.Unlock()
	if old.Accepted == now.Accepted && fmt.Sprint(old.Problem) == fmt.Sprint(problem) {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
	if m.options.Changed != nil {
		m.options.Changed(now)
	}
}

// Run returns nil when ctx ends, and an error when the agent should exit, since the kubelet leaves
// it with a token that is rejected. The exit is recorded then.
func (m *Monitor) Run(ctx context.Context) error {
	for {
		wait, err := m.next(time.Now())
		if err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-m.wake:
			timer.Stop()
		}
	}
}

// idle is how long nothing need be looked at while no token is rejected.
const idle = time.Hour

// next returns how long to wait, or an error if it is time to exit.
func (m *Monitor) next(now time.Time) (time.Duration, error) {
	m.mu.Lock()
	status, rejected := m.status, m.rejected
	m.mu.Unlock()
	if rejected == "" {
		return m.settle(now, status), nil
	}
	if m.projected() != rejected {
		return look, nil // the next request shows what the new one is worth
	}
	before := loadExits(m.options.Record)
	due := latest(renewal(rejected, status.Since).Add(m.options.Patience), before.next(now))
	if wait := due.Sub(now); wait > 0 {
		return min(wait, look), nil
	}
	err := fmt.Errorf("%w since %s, and the kubelet has not replaced it: exiting, so that the kubelet sets it up again with the container",
		status.Problem, status.Since.UTC().Format(time.RFC3339))
	record := exits{Count: before.Count + 1, Last: now, Why: err.Error()}
	if stored := record.store(m.options.Record); stored != nil {
		// Without a record the next agent would exit as soon: the kubelet's own back-off has to do.
		err = fmt.Errorf("%w (the exit is not recorded: %w)", err, stored)
	}
	return 0, err
}

// settle forgets the exits once the credentials have been accepted for the longest pause, and
// returns how long to wait.
func (m *Monitor) settle(now time.Time, status Status) time.Duration {
	e := loadExits(m.options.Record)
	if e.Count == 0 || !status.Accepted || status.Problem != nil {
		return idle
	}
	if wait := e.Last.Add(longestPause).Sub(now); wait > 0 && wait <= longestPause {
		return wait
	}
	_ = forget(m.options.Record) // and if it stays, the next pause is longer
	return idle
}

// renewal returns when the kubelet should have replaced a token that is rejected since a time:
// after 80 % of its life.
func renewal(text string, since time.Time) time.Time {
	issued, expiry := token.Validity(text)
	if issued.IsZero() || expiry.IsZero() {
		return since.Add(unknownLife * 8 / 10)
	}
	life := expiry.Sub(issued)
	if life > 25*time.Hour {
		// A token of an hour is valid for a year, and the kubelet is told that it lives for an hour
		// (--service-account-extend-token-expiration).
		life = unknownLife
	}
	return latest(issued.Add(life*8/10), since)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
