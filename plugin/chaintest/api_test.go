package chaintest_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// A fault prevents the plugin from reading a pod.
type fault struct {
	name string
	// apply applies the fault to the node or its API server.
	apply func(t testing.TB, n *node)
	// hangs is set if each attempt uses all of its time, and hasOneAttempt if there is only one
	// attempt, which may take long on a busy machine.
	hangs, hasOneAttempt bool
}

// faults contains the faults of which short runs cover a sample. slowFaults contains further
// faults, which only long runs cover, because the plugin repeats its attempts until the budget is
// used up. testdata/unreadable.txt contains the errors that users see.
var faults, slowFaults = []fault{
	{"401", always(apiservertest.Unauthorized()), false, true},
	{"403", always(apiservertest.Forbidden()), false, true},
	{"404 of the pod", func(_ testing.TB, n *node) { n.unknownPods = true }, false, true},
	{"429", always(apiservertest.TooManyRequests("1")), false, false},
	{"500", always(apiservertest.InternalError()), false, false},
	{"connections are reset", always(apiservertest.Reset()), false, false},
	{"no TLS handshake", always(apiservertest.NoHandshake()), true, false},
	{
		"a huge answer",
		always(apiservertest.Reply(200, "application/json", strings.Repeat(" ", 9<<20))), false,
		true,
	},
	{"an unknown certificate authority", func(_ testing.TB, n *node) {
		n.api.WriteKubeconfig(n.kubeconfig(), func(cluster, _ map[string]any) {
			cluster["certificate-authority-data"] = apiservertest.OtherCA()
		})
	}, false, true},
	{"no kubeconfig", func(t testing.TB, n *node) {
		must(t, os.Remove(n.kubeconfig()))
	}, false, false},
	{"an invalid kubeconfig", func(t testing.TB, n *node) {
		must(t, os.WriteFile(n.kubeconfig(), []byte("token: [secret"), 0o600))
	}, false, false},
}, []fault{
	{
		"404 of a load balancer",
		always(apiservertest.Reply(404, "text/plain", "404 page not found\n")), false, false,
	},
	{"answers are reset", always(apiservertest.ResetReply()), false, false},
	{"answers are truncated", always(apiservertest.Truncated()), false, false},
	{"no answer to the request", always(apiservertest.NoReply()), true, false},
	{"an endless answer", always(apiservertest.Trickle(time.Millisecond)), true, false},
	{"no connection", func(t testing.TB, n *node) {
		n.in(t, func() error {
			n.setServer(apiservertest.NeverAccepting(t))
			return nil
		})
	}, true, false},
	{"no listener", func(_ testing.TB, n *node) {
		n.setServer("https://127.0.0.1:1")
	}, false, false},
	{
		"a page of a proxy",
		always(apiservertest.Reply(200, "text/html", "<html><body>please log in</body></html>")),
		false, false,
	},
	{
		"another pod with the name",
		always(apiservertest.OtherUID("11111111-1111-1111-1111-111111111111")), false, false,
	},
}

func always(b apiservertest.Behavior) func(testing.TB, *node) {
	return func(_ testing.TB, n *node) { n.api.Always(b) }
}

// setServer changes the server in the kubeconfig.
func (n *node) setServer(server string) {
	n.api.WriteKubeconfig(n.kubeconfig(), func(cluster, _ map[string]any) {
		cluster["server"] = server
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnreadablePodsFollowThePolicy checks ADD of a pod that cannot be read, with both policies,
// and STATUS of the node.
func TestUnreadablePodsFollowThePolicy(t *testing.T) {
	t.Parallel()
	rows := rulestest.Sample(faults, os.Getenv)
	if repetitions(0, 1) > 0 {
		rows = append(rows, slowFaults...)
	}
	texts := openGolden(t, "unreadable.txt")
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c.apply(t, n)
			fails, skips := n.unreadablePod(t), n.unreadablePod(t)
			// If the end of the budget interrupts an attempt, the error is the earlier attempt's.
			failing := chain{
				version: latest,
				fields:  map[string]any{"api_budget": "3s", "api_try_timeout": "3s"},
			}
			switch {
			case c.hasOneAttempt:
				failing.fields = map[string]any{"api_budget": "20s", "api_try_timeout": "20s"}
			case c.hangs:
				failing.fields = map[string]any{"api_budget": "2500ms", "api_try_timeout": "1s"}
			}
			skipping := chain{version: latest, fields: maps.Clone(failing.fields)}
			skipping.fields["unreadable_pods"] = "skip"
			var skipErr error
			var wg sync.WaitGroup
			wg.Go(func() { _, skipErr = skips.add(t, skipping) })
			_, err := fails.add(t, failing)
			wg.Wait()
			texts.check(t, c.name,
				fmt.Sprintf("ADD: %s\nSTATUS: %s\n", n.formatError(err), n.formatError(n.status(t, failing))))

			if remaining := fails.rules(t); err == nil || remaining != "" {
				t.Errorf("ADD: error %v, rules %q; want an error and no rules", err, remaining)
			}
			must(t, fails.del(t, failing))
			if skipErr != nil {
				t.Fatalf("ADD with the policy skip: %v", skipErr)
			}
			skips.start(t)
			skips.checkTraffic(t, false)
			n.checkRecords(t, skips)
			n.checkLogged(t, skips, `"level":"error"`, `"reason":"pod-unreadable"`)
		})
	}
}

func (n *node) unreadablePod(t testing.TB) *pod {
	t.Helper()
	if n.unknownPods {
		return n.newSandbox(t)
	}
	return n.newPod(t, "sidecar")
}

// TestADDSucceedsDespiteTemporaryFaults adds pods while the API server answers late, with errors,
// and with another pod.
func TestADDSucceedsDespiteTemporaryFaults(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.api.Next(apiservertest.Slow(50*time.Millisecond), apiservertest.InternalError(),
		apiservertest.Reset(), apiservertest.Truncated(),
		apiservertest.OtherUID("11111111-1111-1111-1111-111111111111"))
	for range 2 {
		p := n.newPod(t, "sidecar")
		p.mustAdd(t, chain{version: latest})
		p.start(t)
		p.checkTraffic(t, true)
	}
}

// varying matches the parts of an error that differ between runs: addresses, ids, times, numbers of
// attempts, and the operation during which a connection broke.
var varying = regexp.MustCompile(`dial tcp \S+ connect: connection reset|(read|write) tcp \S+ (read|write): |127\.0\.0\.1:\d{2,5}| \(\d+ attempts in [^)]+\)|orders-\d+|7d1e6c2a-[-0-9a-f]+| within [0-9.]+m?s`)

// formatError formats an error as the kubelet puts it into an event, with placeholders for the
// parts that differ between runs.
func (n *node) formatError(err error) string {
	if err == nil {
		return "no error"
	}
	return varying.ReplaceAllStringFunc(strings.ReplaceAll(err.Error(), n.run,
		"/run/dir"), func(match string) string {
		switch match[:2] {
		case "di":
			return "connection reset"
		case "re", "wr", " w", " (":
			return ""
		case "12":
			return "SERVER"
		case "or":
			return "POD"
		case "7d":
			return "UID"
		}
		return match
	})
}

// checkLogged fails the test unless the log file has a line about the pod that contains all the
// words.
func (n *node) checkLogged(t testing.TB, p *pod, words ...string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.run, "sluice-cni.log"))
	must(t, err)
next:
	for line := range strings.Lines(string(log)) {
		for _, word := range append(words, `"`+p.name+`"`) {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		return
	}
	t.Errorf("no line with %q in the log:\n%s", words, log)
}
