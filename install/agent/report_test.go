package agent

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
)

// A testReporter is a reporter whose log messages are recorded.
type testReporter struct {
	*reporter
	t    *testing.T
	logs *observer.ObservedLogs
}

func newTestReporter(t *testing.T) *testReporter {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	r := newReporter(settingsWith(t, "SLUICE_SERVE", "true"), zap.New(core), observe.NewMetrics("test"))
	return &testReporter{r, t, logs}
}

// wantMetrics fails the test unless the metrics contain all lines.
func (tr *testReporter) wantMetrics(lines ...string) {
	tr.t.Helper()
	w := httptest.NewRecorder()
	tr.metrics.Handler(func() {}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range lines {
		if !strings.Contains(w.Body.String(), "\n"+line+"\n") {
			tr.t.Errorf("the metrics do not contain %s", line)
		}
	}
}

// wantLogs fails the test unless exactly these lines, as level and message, were logged since the
// last call.
func (tr *testReporter) wantLogs(want ...string) {
	tr.t.Helper()
	var got []string
	for _, e := range tr.logs.TakeAll() {
		got = append(got, e.Level.String()+" "+e.Message)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		tr.t.Errorf("logged:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestReportFiles checks that the result of a reconciliation is reported when it changes, with the
// node's own paths.
func TestReportFiles(t *testing.T) {
	tr := newTestReporter(t)
	full := node.Problem{
		Reason: node.DiskFull, Message: "write /host/opt/cni/bin/sluice-cni: no space",
		Blocking: true,
	}
	conflict := node.Problem{
		Reason: node.ConflictingWrites, Message: "cilium-agent writes 05-cilium.conflist", Blocking: true,
	}
	now := time.Now()
	s := node.Status{
		At: now, Primary: "05-cilium.conflist", Plugins: []string{"cilium-cni"},
		Problems: []node.Problem{full, conflict},
	}
	s.Totals.Rewrites, s.Totals.FailedWrites = map[string]uint64{"cilium-agent": 3},
		map[string]uint64{"binary": 1}
	tr.reportFiles(s)
	tr.wantLogs("error DiskFull: write /opt/cni/bin/sluice-cni: no space",
		"error ConflictingWriter: cilium-agent writes 05-cilium.conflist")
	s.Totals.FailedWrites = map[string]uint64{"binary": 3} // the write is retried each second
	tr.reportFiles(s)
	tr.wantLogs()
	tr.wantMetrics(
		`sluice_conflicting_writes_total{writer="cilium-agent"} 3`,
		`sluice_install_writes_total{part="binary",result="error"} 3`,
		`istio_cni_installs_total{result="COPY_BINARIES_FAILURE"} 3`,
	)
	if !tr.isBypassed() {
		t.Error("isBypassed returns false although the runtime uses a configuration without the plugin")
	}
	tr.reportFiles(node.Status{
		At: now, Primary: "05-cilium.conflist", Plugins: []string{"cilium-cni"}, Totals: s.Totals,
		Changes: []string{"/host/opt/cni/bin/sluice-cni", "/host/etc/cni/net.d/05-cilium.conflist"},
	})
	if tr.isBypassed() {
		t.Error("isBypassed returns true after all problems were resolved")
	}
	tr.wantLogs(
		"info the agent wrote a file", "info the agent wrote a file",
		"info resolved: DiskFull: write /opt/cni/bin/sluice-cni: no space",
		"info resolved: ConflictingWriter: cilium-agent writes 05-cilium.conflist",
	)
	tr.wantMetrics(
		`istio_cni_installs_total{result="SUCCESS"} 1`,
		`sluice_conflicting_writes_total{writer="cilium-agent"} 3`,
		`sluice_install_writes_total{part="binary",result="success"} 1`,
		`sluice_install_writes_total{part="configuration",result="success"} 1`,
	)
}

func TestResultsOfTokenPublicationsAreLoggedAndCounted(t *testing.T) {
	tr := newTestReporter(t)
	tr.reportToken(token.Status{Failed: 1, Problem: errors.New("not reached")})
	tr.reportToken(token.Status{Failed: 2, Problem: errors.New("not reached")})
	tr.reportToken(token.Status{Failed: 2, Rejected: 1, Problem: errors.New("refused")})
	published := token.Status{Failed: 2, Rejected: 1, Published: 1, Origin: token.Projected}
	tr.reportToken(published)
	tr.wantLogs(
		"warn the plugin's kubeconfig cannot be written", "warn the plugin's kubeconfig cannot be written",
		"info the plugin's kubeconfig was written", "info resolved: the plugin's kubeconfig cannot be written",
	)
	tr.wantMetrics(
		`sluice_token_publications_total{result="error"} 2`,
		`sluice_token_publications_total{result="refused"} 1`,
		`sluice_token_publications_total{result="success"} 1`,
		`istio_cni_installs_total{result="CREATE_KUBECONFIG_FAILURE"} 2`,
	)
}

// TestTokenIsReportedOnlyWhenItsStatusChanges checks that repeated attempts report a result only
// when it changes.
func TestTokenIsReportedOnlyWhenItsStatusChanges(t *testing.T) {
	tr := newTestReporter(t)
	s := token.Status{Published: 1, Origin: token.Projected}
	tr.reportToken(s)
	tr.wantLogs("info the plugin's kubeconfig was written")
	for range 3 {
		s.Forbidden = errors.New("403")
		tr.reportToken(s)
	}
	tr.wantLogs("warn the plugin lacks a permission")
	for took := range 3 {
		s.Forbidden, s.Unavailable = nil, fmt.Errorf("no answer within %d ms", took)
		tr.reportToken(s)
	}
	tr.wantLogs("info resolved: the plugin lacks a permission",
		"warn the API server does not reply to requests with the plugin's kubeconfig")
	s.Unavailable = nil
	tr.reportToken(s)
	tr.wantLogs("info resolved: the API server does not reply to requests with the plugin's kubeconfig")
}

// TestCountAdd checks that every outcome of an ADD is counted by its result, its reason and the
// address families that are not captured.
func TestCountAdd(t *testing.T) {
	tr := newTestReporter(t)
	tr.countAdd(protocol.Add{
		Result: "success", Decision: "skip", Reason: "istio-init", Backend: "none",
	})
	tr.countAdd(protocol.Add{
		Result: "success", Decision: "redirect", Reason: "mesh-pod", Backend: "nft",
		Uncaptured: []string{"ipv6"}, Bytes: 2048,
	})
	tr.wantMetrics(
		`sluice_adds_total{backend="none",decision="skip",result="success"} 1`,
		`sluice_add_reasons_total{reason="istio-init"} 1`,
		`sluice_adds_total{backend="nft",decision="redirect",result="success"} 1`,
		`sluice_add_reasons_total{reason="mesh-pod"} 1`,
		`sluice_add_reasons_total{reason="undecided"} 0`,
		`sluice_uncaptured_pods_total{family="ipv6"} 1`,
		`sluice_transaction_bytes_count{backend="nft"} 1`,
	)
}

// TestPluginLinesKeepTheirLevel checks that log lines of the plugin keep their level, but cannot
// end the agent.
func TestPluginLinesKeepTheirLevel(t *testing.T) {
	tr := newTestReporter(t)
	for _, line := range []string{
		`{"level":"warn","msg":"ADD"}`, `{"level":"fatal","msg":"DEL"}`, `{"level":"?"}`, `no JSON`,
		`{"msg":"a\nb"}`,
	} {
		tr.logPluginLine([]byte(line))
	}
	tr.wantLogs("warn plugin: ADD", "error plugin: DEL", "info plugin: ", "info plugin: ",
		"info plugin: a b")
}

// TestKernelTester checks the results of the test of the kernel: an agent without the plugin's
// capabilities cannot test the kernel, reports this, and treats the kernel as supported.
func TestKernelTester(t *testing.T) {
	netnstest.RequireRoot(t)
	for _, tc := range []struct {
		name           string
		err            error
		ready, unknown bool
	}{
		{"the agent may not test the kernel", unix.EPERM, true, true},
		{"the kernel does not support the rules", unix.EOPNOTSUPP, false, false},
	} {
		k := newKernelTester(compat.BackendAuto)
		k.choose = func(compat.BackendName) (compat.Backend, error) { return nil, tc.err }
		if p := k.test(); p.Ready != tc.ready || p.Unknown != tc.unknown || len(p.Reasons) == 0 {
			t.Errorf("%s: the part is %+v, want ready %v and unknown %v with a reason", tc.name, p,
				tc.ready, tc.unknown)
		}
	}
	if p := newKernelTester(compat.BackendNFT).test(); !p.Ready || p.Unknown ||
		!strings.Contains(p.Reasons[0], "nft") {
		t.Errorf("this kernel: the part is %+v, want ready with nft", p)
	}
}

// TestUnwatchedNamespacesAreNotReportedAsPods checks that a failed watch of namespaces is not
// reported as a failed watch of pods.
func TestUnwatchedNamespacesAreNotReportedAsPods(t *testing.T) {
	core, recorded := observer.New(zap.WarnLevel)
	a := &Agent{
		options: Options{Log: &logs.Log{Logger: zap.New(core)}}, metrics: observe.NewMetrics("test"),
	}
	a.reportUnwatched(podcache.Namespaces, errors.New("forbidden"))
	response := httptest.NewRecorder()
	a.metrics.Handler(func() {}).ServeHTTP(response, httptest.NewRequest("GET", "/metrics", nil))
	text := response.Body.String()
	if !strings.Contains(text, "\nsluice_events_lost_total{source=\"namespaces\"} 1\n") ||
		strings.Contains(text, "\nsluice_events_lost_total{source=\"pods\"} 1\n") {
		t.Errorf("metrics %s, want one failure of the watch of namespaces", text)
	}
	if messages := recorded.All(); len(messages) != 1 || !strings.HasPrefix(messages[0].Message, "namespaces ") {
		t.Errorf("messages %+v, want one about namespaces", messages)
	}
}

func TestChainCheck(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	s := node.Status{
		At: start, Done: start.Add(10 * time.Second), Unread: true, Changes: []string{"/host/a"},
		Problems: []node.Problem{
			{Reason: node.WatchFailed, Message: "harmless"},
			{Reason: node.InstallFailed, Message: "lock /host/a", Blocking: true},
			{Reason: node.DiskFull, Message: "b", Blocking: true},
		},
	}
	want := bypass.ChainCheck{
		At: s.At, Done: s.Done, Repaired: true, Unread: true,
		Reason: "InstallFailed: lock /a; DiskFull: b",
	}
	if got := chainCheck(s, strings.NewReplacer("/host", "")); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.Problems, s.Unread = nil, false
	if got := chainCheck(s, strings.NewReplacer()); !got.Complete || got.Unread || got.Reason != "" {
		t.Errorf("without a problem: %+v, want a complete chain", got)
	}
}
