package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/token"
)

// TestCauseOfAProblemIsReportedOnce checks that the cause of a problem is reported once, and that
// the wait at the start of the agent is not reported as a problem.
func TestCauseOfAProblemIsReportedOnce(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	notInserted := []node.Problem{{
		Reason: node.NotReadyToInsert, Message: "not inserted yet", Blocking: true,
	}}
	unavailable := func(since time.Duration) token.Status {
		return token.Status{
			Origin: token.Requested, Unavailable: errors.New("no connection"),
			UnavailableSince: now.Add(-since),
		}
	}
	for _, row := range []struct {
		name    string
		token   token.Status
		missing []string
		serves  bool
		want    string // the expected reasons
	}{
		{"the agent starts", token.Status{}, nil, false, ""},
		{
			"no token can be requested",
			token.Status{Problem: errors.New("refused"), ProblemSince: now.Add(-time.Minute)},
			nil, false,
			"NotReadyToInsert TokenNotPublished",
		},
		{
			"the API server does not reply yet",
			token.Status{Problem: errors.New("no connection"), ProblemSince: now.Add(-time.Second)},
			nil, false,
			"",
		},
		{
			"the API server does not reply to a renewal",
			token.Status{
				Origin: token.Requested, Problem: errors.New("no connection"),
				ProblemSince: now.Add(-time.Second),
			},
			nil, false,
			"NotReadyToInsert",
		},
		{
			"a permission is missing",
			token.Status{Origin: token.Requested, Forbidden: errors.New("403")},
			[]string{"get"},
			false, "RightsMissing",
		},
		{"a short outage of the API server", unavailable(time.Second), nil, false, "NotReadyToInsert"},
		{
			"an outage of the API server", unavailable(time.Minute), nil, false,
			"NotReadyToInsert APIServerUnavailable",
		},
		{
			"an outage while the node's pods are served", unavailable(time.Minute), nil, true,
			"NotReadyToInsert",
		},
	} {
		var got []string
		for _, n := range problemEvents(notInserted, row.token, row.missing, row.serves, now) {
			got = append(got, n.reason)
		}
		if diff := cmp.Diff(row.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}
