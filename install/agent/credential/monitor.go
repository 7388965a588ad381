package credential

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/notify"
	"github.com/sluice-mesh/sluice/plugin/source"
)

const (
	// defaultReplacementTimeout is longer than the 60 to 90 s between the kubelet's syncs of a pod.
	defaultReplacementTimeout = 2 * time.Minute
	// defaultLife is the assumed lifetime of a token that contains none. The kubelet requests an
	// hour by default.
	defaultLife = time.Hour
	// extendedLife is the lifetime beyond which a token counts as extended: the API server extends
	// a requested lifetime of an hour to a year (--service-account-extend-token-expiration), but
	// the kubelet replaces the token as if it had the requested lifetime.
	extendedLife = 25 * time.Hour
	// pollInterval is the interval for comparing the token file with the rejected token.
	pollInterval = 10 * time.Second
)

// Options are the options of a [Monitor]. TokenFile, CAFile and Record are required.
type Options struct {
	// TokenFile and CAFile are the paths of the credentials.
	TokenFile, CAFile string
	// Record is the path of the file that counts exits across restarts.
	Record string
	// Changed, unless nil, is called when the credentials are accepted for the first time or again,
	// are rejected, or are rejected for another reason. It is called in the order of the changes,
	// and not concurrently. It must not block.
	Changed func(Status)
	// ReplacementTimeout is the time within which the kubelet must replace a rejected token after
	// 80 % of the token's lifetime, or after the first rejection if that is later; 2 min if 0.
	ReplacementTimeout time.Duration
}

// Status is the state of the agent's credentials. The zero value means that the API server has not
// replied yet.
type Status struct {
	// Accepted is set once the API server has accepted the token.
	Accepted bool
	// Problem is not nil if the API server rejects the token, or if the certificate authority does
	// not verify the API server's certificate.
	Problem error
	// Since is the time when Problem was first detected.
	Since time.Time
}

// A Monitor derives the state of the credentials from the outcome of requests. Use [New], and pass
// [Monitor.RecordResponse] to the client of the API server. It is safe for concurrent use.
type Monitor struct {
	options Options
	wake    notify.Channel
	created time.Time // when the monitor was created

	mu       sync.Mutex
	status   Status
	rejected string // the token that the API server rejects; empty if it rejects none
	// unreported contains the changes of status that have not been reported yet. reporting is set
	// while a goroutine reports them.
	unreported []Status
	reporting  bool
}

// New returns a monitor.
func New(o Options) *Monitor {
	if o.ReplacementTimeout == 0 {
		o.ReplacementTimeout = defaultReplacementTimeout
	}
	return &Monitor{options: o, wake: notify.New(), created: time.Now()}
}

// Status returns the current status.
func (m *Monitor) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Exits returns how often agents of this node have exited because of their credentials, according
// to the record, and the reason of the last exit. The record is removed when the credentials are
// accepted and the last exit was at least an hour ago.
func (m *Monitor) Exits() (count int, reason string) {
	e := loadExits(m.options.Record)
	return e.Count, e.Reason
}

// RecordResponse records the outcome of a request with a token. The code is 0 without a reply.
func (m *Monitor) RecordResponse(usedToken string, code int, err error) {
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		m.setState("",
			fmt.Errorf("%s does not verify the API server's certificate: %w", m.options.CAFile,
				untrusted.Err))
	case err != nil:
		// An unavailable API server does not show whether the credentials are valid.
	case isAuthenticated(code):
		m.setState("", nil)
	case code == http.StatusUnauthorized && usedToken == m.projectedToken():
		m.setState(usedToken,
			errors.New("the API server rejects the agent's service account token (401)"))
	default:
		// The token has been replaced meanwhile, or the code does not show whether it is valid.
	}
}

// isAuthenticated reports whether the API server sends a reply with this code only after it has
// authenticated the token. It sends 400, 429, 503 and 504 also before, for example while it starts
// or when a deadline has passed (DefaultBuildHandlerChain in k8s.io/apiserver), and load balancers
// that cannot reach an API server send 404 and 5xx.
func isAuthenticated(code int) bool {
	switch code {
	case http.StatusForbidden, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		return true
	}
	return code >= 200 && code < 300
}

// projectedToken returns the token in the file, or an empty string if it cannot be read.
func (m *Monitor) projectedToken() string {
	text, _ := apiclient.ReadToken(m.options.TokenFile)
	return text
}

// setState sets the rejected token and the problem, and reports a changed problem or the first
// acceptance.
func (m *Monitor) setState(rejected string, problem error) {
	m.mu.Lock()
	before := m.status
	m.rejected = rejected
	m.status.Problem = problem
	switch {
	case problem == nil:
		m.status.Accepted, m.status.Since = true, time.Time{}
	case before.Problem == nil:
		m.status.Since = time.Now()
	}
	after := m.status
	isChanged := before.Accepted != after.Accepted ||
		fmt.Sprint(before.Problem) != fmt.Sprint(problem)
	if isChanged && m.options.Changed != nil {
		m.unreported = append(m.unreported, after)
	}
	m.mu.Unlock()
	if !isChanged {
		return
	}
	m.wake.Notify()
	m.report()
}

// report reports the unreported changes of the status in order. If another goroutine is in report,
// that goroutine reports them.
func (m *Monitor) report() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reporting {
		return
	}
	m.reporting = true
	for len(m.unreported) > 0 {
		next := m.unreported[0]
		m.unreported = m.unreported[1:]
		m.mu.Unlock()
		m.options.Changed(next)
		m.mu.Lock()
	}
	m.reporting = false
}

// Run returns nil when ctx is done, or an error when the agent should exit because the kubelet does
// not replace a rejected token. The exit is then recorded.
func (m *Monitor) Run(ctx context.Context) error {
	for {
		wait, err := m.check(time.Now())
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-m.wake:
		}
	}
}

// idleInterval is the interval of checks while no token is rejected.
const idleInterval = time.Hour

// check returns the time to wait until the next check, or an error if the agent must exit.
func (m *Monitor) check(now time.Time) (time.Duration, error) {
	m.mu.Lock()
	status, rejected := m.status, m.rejected
	m.mu.Unlock()
	if rejected == "" {
		return m.forgetExits(now, status), nil
	}
	if m.projectedToken() != rejected {
		return pollInterval, nil // the next request shows whether the new token is valid
	}
	earlier := loadExits(m.options.Record)
	wait := max(renewal(rejected, status.Since).Add(m.options.ReplacementTimeout).Sub(now),
		earlier.nextAllowed(m.created).Sub(now))
	if wait > 0 {
		return min(wait, pollInterval), nil
	}
	err := fmt.Errorf("%w; it was first rejected at %s, and the kubelet has not replaced it: "+
		"exiting, so that the kubelet projects a new token before it restarts the container",
		status.Problem, status.Since.UTC().Format(time.RFC3339))
	record := exits{Count: earlier.Count + 1, Last: now, Reason: err.Error()}
	if storeErr := record.store(m.options.Record); storeErr != nil {
		// Without the record, the next agent does not wait longer before its exit than this agent
		// did; only the kubelet's back-off delays the next exit.
		err = fmt.Errorf("%w (the exit is not recorded: %w)", err, storeErr)
	}
	return 0, err
}

// forgetExits removes the record of exits if the credentials are accepted and the last exit was at
// least maxExitInterval ago. It returns the time to wait until the next check.
func (m *Monitor) forgetExits(now time.Time, status Status) time.Duration {
	e := loadExits(m.options.Record)
	if e.Count == 0 || !status.Accepted || status.Problem != nil {
		return idleInterval
	}
	if wait := e.Last.Add(maxExitInterval).Sub(now); wait > 0 && wait <= maxExitInterval {
		return wait
	}
	_ = os.Remove(m.options.Record) // a record that remains only delays the next exit
	return idleInterval
}

// renewal returns the time by which the kubelet should have replaced a rejected token: after 80 %
// of the token's lifetime, but not before since, when the API server first rejected the token. If
// the token does not contain its lifetime, renewal assumes defaultLife from since on. A token that
// was issued after since, because the clock was set back, counts as issued at since. The result has
// the monotonic reading of since.
func renewal(rejected string, since time.Time) time.Time {
	claims := source.ParseToken(rejected)
	if claims.IssuedAt.IsZero() || claims.Expiry.IsZero() {
		return since.Add(defaultLife * 8 / 10)
	}
	lifetime := claims.Expiry.Sub(claims.IssuedAt)
	if lifetime > extendedLife {
		lifetime = defaultLife
	}
	age := max(0, since.Sub(claims.IssuedAt))
	return since.Add(max(0, lifetime*8/10-age))
}
