package agent

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/credential"
)

// exitsFile is the file in the run directory that counts the agent's exits because of its
// credentials; see package credential.
const exitsFile = "agent-exits.json"

// credentialsReason is the reason of the event that reports rejected credentials of the agent.
const credentialsReason = "CredentialsRejected"

// credentialsChanged reports that the agent's credentials are rejected or accepted again. When they
// are accepted for the first time, it reports the exits of earlier agents.
func (a *Agent) credentialsChanged(s credential.Status) {
	a.publisher.Check() // the plugin's token belongs to the same service account
	a.reporter.mu.Lock()
	last := a.reporter.lastReported.credentials
	a.reporter.lastReported.credentials = s
	a.reporter.mu.Unlock()
	switch {
	case s.Problem != nil:
		a.options.Log.Error("the API server and the agent's credentials do not match",
			zap.Error(s.Problem))
	case last.Problem != nil:
		a.options.Log.Info("the API server accepts the agent's credentials again",
			zap.Time("since", last.Since))
		if e, ok := rejectionEvent(last, time.Now()); ok {
			a.events.notePast(e)
		}
		a.events.retry()
	case !last.Accepted:
		if n, reason := a.credentials.Exits(); n > 0 {
			a.options.Log.Warn(
				"agents of this node exited because the API server rejected their credentials",
				zap.Int("exits", n), zap.String("last", reason))
			a.events.notePast(problemEvent{
				reason: credentialsReason,
				message: fmt.Sprintf("number of exits of the agent: %d; reason of the last exit: %s", n,
					reason),
			})
		}
	}
	a.updateEvents()
}

// rejectionEvent returns the event for credentials that the API server accepts again. ok is false
// if the rejection was too short to be reported: an API server that starts may reject credentials
// for a moment.
func rejectionEvent(last credential.Status, now time.Time) (e problemEvent, ok bool) {
	e = problemEvent{
		reason: credentialsReason,
		message: fmt.Sprintf("%v, from %s to %s", last.Problem,
			last.Since.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)),
	}
	return e, now.Sub(last.Since) >= settleTime
}
