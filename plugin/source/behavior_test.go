package source_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestOnlyTemporaryErrorsAreRetried checks, in virtual time, which behavior of an API server leads
// to another request. The server shows the behavior once, and then answers normally.
func TestOnlyTemporaryErrorsAreRetried(t *testing.T) {
	object := func(code int, format string, arguments ...any) apiservertest.Behavior {
		return apiservertest.Reply(code, "application/json", fmt.Sprintf(format, arguments...))
	}
	const pod = `{"kind":%q,"apiVersion":%q,"metadata":{"name":%q,"namespace":%q,"uid":"556740d7-0403-486a-8758-b92ee8a08100"}}`
	const notFound = `{"kind":"Status","apiVersion":"v1","reason":"NotFound","details":{"kind":%q,"name":%q},"code":404}`
	for _, row := range []struct {
		name     string
		behavior apiservertest.Behavior
		requests int           // number of requests that the server receives
		least    time.Duration // minimum of the elapsed time; the maximum is 100 ms more
		kind     source.Kind
		text     string
	}{
		{"a normal answer needs one request", apiservertest.Normal(), 1, 0, "", ""},
		{
			"a slow answer is awaited", apiservertest.Slow(3 * time.Second), 1,
			3 * time.Second, "", "",
		},
		{
			"an answer that is too slow is retried", apiservertest.Slow(time.Hour), 2,
			4050 * time.Millisecond, "", "",
		},
		{
			"a missing answer is retried", apiservertest.NoReply(), 2,
			4050 * time.Millisecond, "", "",
		},
		{
			"a missing TLS handshake is abandoned after half the time", apiservertest.NoHandshake(), 1,
			2050 * time.Millisecond, "", "",
		},
		{
			"a reset before the request is retried", apiservertest.Reset(), 1,
			50 * time.Millisecond, "", "",
		},
		{
			"a closed connection is retried", apiservertest.HangUp(), 2, 50 * time.Millisecond,
			"", "",
		},
		{
			"a reset within the answer is retried", apiservertest.ResetReply(), 2,
			50 * time.Millisecond, "", "",
		},
		{
			"incomplete JSON is retried", apiservertest.Truncated(), 2,
			50 * time.Millisecond, "", "",
		},
		{
			"an endless answer is retried", apiservertest.Trickle(time.Second), 2,
			4050 * time.Millisecond, "", "",
		},
		{
			"401 is final", apiservertest.Unauthorized(), 1, 0, source.Unauthorized,
			"does not accept the token of kubeconfig",
		},
		{
			"403 is final, with the server's message",
			apiservertest.Forbidden(), 1, 0, source.Forbidden,
			`it answers 403: "pods \"web\" is forbidden: User`,
		},
		{
			"404 is final", object(404, notFound, "pods", "web"), 1, 0, source.NotFound,
			"it answers 404: not found",
		},
		{
			"404 of another pod is retried", object(404, notFound, "pods", "other"), 2,
			50 * time.Millisecond, "", "",
		},
		{
			"404 of another resource is retried", object(404, notFound, "nodes", "web"), 2,
			50 * time.Millisecond, "", "",
		},
		{
			"404 of a load balancer is retried", apiservertest.Reply(404, "text/html", "<h1>404</h1>"),
			2, 50 * time.Millisecond, "", "",
		},
		{
			"405 is final", apiservertest.Status(405, "no"), 1, 0, source.Unavailable,
			`it answers 405: "no"`,
		},
		{
			"a redirect is final, and not followed",
			apiservertest.ReplyWith(307, http.Header{"Location": {"/"}}, ""), 1, 0,
			source.Unavailable, "it answers 307",
		},
		{"500 is retried", apiservertest.InternalError(), 2, 50 * time.Millisecond, "", ""},
		{
			"408 is retried", apiservertest.Status(408, "too late"), 2, 50 * time.Millisecond,
			"", "",
		},
		{
			"429 is retried", apiservertest.Status(429, "slowly"), 2, 50 * time.Millisecond, "",
			"",
		},
		{
			"429 with seconds is retried after these seconds", apiservertest.TooManyRequests("3"), 2,
			3050 * time.Millisecond, "", "",
		},
		{
			"429 with a date is retried at that date", apiservertest.TooManyRequests("Sat, 01 Jan 2000 00:00:03 GMT"), 2,
			3050 * time.Millisecond, "", "",
		},
		{
			"429 with a date in the past is retried without it",
			apiservertest.TooManyRequests("Sat, 01 Jan 1999 00:00:03 GMT"), 2,
			50 * time.Millisecond, "", "",
		},
		{
			"seconds beyond the budget are final",
			apiservertest.TooManyRequests("10"), 1, 0, source.Unavailable,
			"requests a retry after 10s",
		},
		{
			"seconds that overflow are final",
			apiservertest.TooManyRequests("9223372036854775808"), 1, 0, source.Unavailable,
			"requests a retry after",
		},
		{
			"a date that overflows is final",
			apiservertest.TooManyRequests("Fri, 31 Dec 2999 23:59:59 GMT"), 1, 0,
			source.Unavailable, "requests a retry after",
		},
		{
			"an answer larger than a pod can be is final",
			apiservertest.Huge(8 << 20), 1, 0, source.Unavailable, "its answer is larger than 8 MiB",
		},
		{"an answer of the size of the largest pod is accepted", apiservertest.Huge(3 << 20), 1, 0, "", ""},
		{
			"an answer that is not JSON is retried", apiservertest.Reply(200, "text/html", "welcome"), 2,
			50 * time.Millisecond, "", "",
		},
		{"a pod is the answer", object(200, pod, "Pod", "v1", "web", "default"), 1, 0, "", ""},
		{
			"an answer of another kind is retried", object(200, pod, "PodList", "v1", "web", "default"), 2,
			50 * time.Millisecond, "", "",
		},
		{
			"a pod of another version is retried",
			object(200, pod, "Pod", "v2", "web", "default"), 2, 50 * time.Millisecond, "", "",
		},
		{
			"another pod is retried", object(200, pod, "Pod", "v1", "other", "default"),
			2, 50 * time.Millisecond, "", "",
		},
		{
			"a pod of another namespace is retried", object(200, pod, "Pod", "v1", "web", "other"), 2,
			50 * time.Millisecond, "", "",
		},
		{
			"a pod with another UID is retried", apiservertest.OtherUID("old"), 2,
			50 * time.Millisecond, "", "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, api := startInMemory(t)
				server.Next(row.behavior)
				got := requestPod(t.Context(), api, web)
				got.check(t, row.kind, row.text)
				if n := len(server.Requests()); n != row.requests {
					t.Errorf("%d requests, want %d", n, row.requests)
				}
				if most := row.least + 100*time.Millisecond; got.elapsed < row.least || got.elapsed > most {
					t.Errorf("the request took %v, want between %v and %v", got.elapsed, row.least, most)
				}
			})
		})
	}
}

// TestBudgetLimitsAttempts checks, in virtual time, the error and the duration of the attempts if
// an API server always misbehaves: the budget limits the attempts.
func TestBudgetLimitsAttempts(t *testing.T) {
	for _, row := range []struct {
		name     string
		behavior apiservertest.Behavior
		least    time.Duration // minimum of the elapsed time; the maximum is the budget of 10 s
		kind     source.Kind
		text     string
	}{
		{
			"500", apiservertest.InternalError(), 9 * time.Second, source.Unavailable,
			`it answers 500: "etcdserver: request timed out" (`,
		},
		{
			"429 with seconds",
			apiservertest.TooManyRequests("4"), 8 * time.Second, source.Unavailable,
			"requests a retry after 4s (3 attempts",
		},
		{
			"no TLS handshake", apiservertest.NoHandshake(), 9 * time.Second, source.Unavailable,
			"TLS handshake timeout",
		},
		{
			"no answer", apiservertest.NoReply(), 10 * time.Second, source.Unavailable,
			"no answer within 4s (3 attempts in 10s)",
		},
		{
			"an endless answer",
			apiservertest.Trickle(time.Second), 10 * time.Second, source.Unavailable,
			"no complete answer within 4s (3 attempts in 10s)",
		},
		{"resets", apiservertest.Reset(), 9 * time.Second, source.Unavailable, "closed"},
		{
			"connections closed without an answer", apiservertest.HangUp(), 9 * time.Second, source.Unavailable,
			"it closed the connection without an answer",
		},
		{
			"a huge header",
			apiservertest.ReplyWith(200, http.Header{"X": {strings.Repeat("x", 70_000)}}, ""),
			9 * time.Second, source.Unavailable, "server response headers exceeded 65536 bytes",
		},
		{
			"a broken header",
			apiservertest.ReplyWith(200, http.Header{"Retry-After": {strings.Repeat("\x01", 9999)}},
				""),
			9 * time.Second, source.Unavailable, `malformed MIME header line: "Retry-After: \x01`,
		},
		{
			"a long message with line breaks", apiservertest.Status(500, strings.Repeat("ä\n", 9999)), 9 * time.Second,
			source.Unavailable, `ä\nä\n…" (`,
		},
		{
			"half answers", apiservertest.ResetReply(), 9 * time.Second, source.Unavailable,
			"its answer is incomplete: unexpected EOF",
		},
		{
			"half JSON", apiservertest.Truncated(), 9 * time.Second, source.Unavailable,
			"its answer is not a Pod: unexpected end of JSON input",
		},
		{
			"no JSON",
			apiservertest.Reply(200, "text/html", "hello"), 9 * time.Second, source.Unavailable,
			`its answer has content type "text/html", not application/json`,
		},
		{
			"no kind",
			apiservertest.Reply(200, "application/json", "{}"), 9 * time.Second, source.Unavailable,
			`its answer is kind "" of "", not kind Pod of v1`,
		},
		{
			"another UID", apiservertest.OtherUID("new"), 9 * time.Second, source.Replaced,
			`the pod with this name has UID "new", not "556740d7-0403-486a-8758-b92ee8a08100"`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, api := startInMemory(t)
				server.Always(row.behavior)
				got := requestPod(t.Context(), api, web)
				got.check(t, row.kind, row.text)
				checkText(t, got.err, "pod default/web: API server memory.test:443: ")
				if got.elapsed < row.least || got.elapsed > 10*time.Second {
					t.Errorf("the request took %v, want between %v and 10 s", got.elapsed, row.least)
				}
			})
		})
	}
}
