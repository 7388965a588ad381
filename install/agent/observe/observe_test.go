package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/rules"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(floodEnv); port != "" {
		flood(port)
	}
	goleak.VerifyTestMain(m)
}

func part(name string, ready bool) observe.Part { return observe.Part{Name: name, Ready: ready} }

func TestCombine(t *testing.T) {
	kernel, binary, configuration := part(observe.Kernel, true), part(observe.Binary, true),
		part(observe.Configuration, true)
	for _, tc := range []struct {
		name  string
		parts []observe.Part
		want  bool
	}{
		{
			"all parts are ready",
			[]observe.Part{
				kernel, binary, configuration, part(observe.Kubeconfig, true),
				part(observe.Socket, true),
			},
			true,
		},
		{
			"the API server rejects the token, and the socket answers",
			[]observe.Part{kernel, part(observe.Kubeconfig, false), part(observe.Socket, true)},
			true,
		},
		{
			"the socket is missing, and the kubeconfig is valid",
			[]observe.Part{kernel, part(observe.Kubeconfig, true), part(observe.Socket, false)},
			true,
		},
		{
			"no access to pods",
			[]observe.Part{
				kernel, binary, part(observe.Kubeconfig, false), part(observe.Socket, false),
			},
			false,
		},
		{
			"no socket is configured, and the kubeconfig is invalid",
			[]observe.Part{kernel, part(observe.Kubeconfig, false)},
			false,
		},
		{
			"the kernel lacks support",
			[]observe.Part{part(observe.Kernel, false), binary, part(observe.Kubeconfig, true)},
			false,
		},
		{
			"the executable is missing",
			[]observe.Part{kernel, part(observe.Binary, false), part(observe.Kubeconfig, true)},
			false,
		},
		{
			"a permission is missing, and socket and kubeconfig are ready",
			[]observe.Part{
				kernel, part(observe.Permissions, false), part(observe.Kubeconfig, true),
				part(observe.Socket, true),
			},
			false,
		},
		{
			"the plugin is not in the chain",
			[]observe.Part{part(observe.Configuration, false), part(observe.Kubeconfig, true)},
			false,
		},
	} {
		if got := observe.Combine(tc.parts...).Ready; got != tc.want {
			t.Errorf("%s: ready %v, want %v", tc.name, got, tc.want)
		}
	}
}

// ask sends a request from an address.
func ask(h http.Handler, method, path, from, body string) (code int, answer string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const (
	local  = "[::1]:40000"
	remote = "10.0.0.7:40000"
)

func TestReadyz(t *testing.T) {
	readiness := observe.Combine(observe.Part{
		Name: observe.Kernel, Reasons: []string{"no nf_tables"},
	}, part(observe.Kubeconfig, true))
	h := observe.Health{Ready: func() observe.Readiness { return readiness }}.Handler()
	code, text := ask(h, "GET", "/readyz", remote, "")
	want := "not ready: pods that start on this node now may fail, or have no redirection\n" +
		"[-] kernel\n    no nf_tables\n[+] kubeconfig\n"
	if diff := cmp.Diff(want, text); diff != "" || code != 503 {
		t.Errorf("status code %d, want 503; text (-want +got):\n%s", code, diff)
	}
	code, text = ask(h, "GET", "/readyz?format=json", remote, "")
	var got observe.Readiness
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 503 {
		t.Fatalf("JSON: status code %d, error %v; want 503", code, err)
	}
	if diff := cmp.Diff(readiness, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	readiness = observe.Combine(part(observe.Kubeconfig, true))
	if code, text := ask(h, "GET", "/readyz", remote, ""); code != 200 ||
		!strings.HasPrefix(text, "ready:") {
		t.Errorf("/readyz of a ready agent: %d %s, want 200", code, text)
	}
	// A state that could not be determined is shown as unknown.
	readiness = observe.Combine(observe.Part{Name: observe.Kernel, Ready: true, Unknown: true},
		part(observe.Kubeconfig, true))
	code, text = ask(h, "GET", "/readyz", remote, "")
	if code != 200 || !strings.HasPrefix(text, "ready as far as known: ") ||
		!strings.HasSuffix(text, "\n[?] kernel\n[+] kubeconfig\n") {
		t.Errorf("/readyz with an unknown part: %d %s, want 200 and [?]", code, text)
	}
}

func TestHealthz(t *testing.T) {
	var stuck error
	h := observe.Health{Stuck: func() error { return stuck }}.Handler()
	if code, _ := ask(h, "GET", "/healthz", remote, ""); code != 200 {
		t.Errorf("/healthz of a running agent: %d, want 200", code)
	}
	stuck = errors.New("stuck")
	if code, text := ask(h, "GET", "/healthz", remote, ""); code != 503 || text != "stuck\n" {
		t.Errorf("/healthz of a stuck agent: %d %s, want 503 with the error", code, text)
	}
}

func TestLogLevelIsChangedOnlyFromTheAgentsNamespace(t *testing.T) {
	for _, tc := range []struct {
		name, from, body string
		code             int
		after            string
	}{
		{"from the agent's own namespace", local, "debug\n", 200, "debug"},
		{"from the agent's own namespace over IPv4", "127.0.0.1:1", "none", 200, "none"},
		{"from another address in the cluster", remote, "debug", 403, "info"},
		{"an invalid level", local, "loud", 400, "info"},
		{"an empty level", local, "", 400, "info"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := observe.Health{Level: zap.NewAtomicLevel()}.Handler()
			if code, text := ask(h, "PUT", "/log-level", tc.from, tc.body); code != tc.code {
				t.Errorf("PUT /log-level: %d %s, want %d", code, text, tc.code)
			}
			if _, level := ask(h, "GET", "/log-level", remote, ""); level != tc.after+"\n" {
				t.Errorf("level %s, want %s", level, tc.after)
			}
		})
	}
}

// TestMetricsMatchTheirTable checks that every metric in the table can be reported with its labels,
// and has its help and type. The only other metrics are the metrics of the process and of the Go
// runtime.
func TestMetricsMatchTheirTable(t *testing.T) {
	m := observe.NewMetrics("v1")
	for _, s := range []metrics.CounterSeries{
		metrics.ConflictingWrites("x"), metrics.IstioInstalls(metrics.InstallationConfig),
		metrics.InstallWrites(observe.Binary, metrics.Failure),
		metrics.TokenPublications(metrics.TokenRefused), metrics.Adds("success", "redirect", "nft"),
		metrics.AddReasons("x"),
		metrics.UncapturedPods("ipv6"), metrics.ServeRequests("x"),
		metrics.Audits(metrics.AuditEqual), metrics.Drifts(metrics.DriftAbsent),
		metrics.BypassedPods(), metrics.EventsLost(metrics.SourceFiles),
		metrics.Repairs(metrics.CauseRace, metrics.ActionRepair, metrics.Success),
		metrics.IstioPodsRepaired(metrics.ActionRepair, metrics.PodSkipped),
		metrics.BypassingConnections(metrics.ConnectionKept),
		metrics.ConnectionsRefused("health"), metrics.LogLinesSuppressed(),
		metrics.AmbientEnrollments(metrics.Success), metrics.HostRulesEvents("repaired"),
	} {
		m.Count(s, 1)
	}
	m.Replace("sluice_rule_packets_total", []metrics.CounterValue{
		{CounterSeries: metrics.RulePackets("shop", "web", rules.OutboundDNS), Value: 1},
	})
	for _, s := range []metrics.GaugeSeries{
		metrics.InstallReady(), metrics.IstioInstallReady(),
		metrics.InstallPartReady(observe.Binary), metrics.ChainBypassed(),
		metrics.TokenAge(), metrics.TokenExpiry(), metrics.NodeDirectory("binary", "same"),
		metrics.Pods("drifted"),
		metrics.PodsForeignRules("bypass"), metrics.AuditLastCompleted(), metrics.AuditInterval(),
		metrics.BuildInfo("v2", "x"), metrics.ZtunnelConnected(), metrics.AmbientPods("pending"),
		metrics.HostRulesInPlace(), metrics.ZtunnelPodsUnacknowledged(),
	} {
		m.Set(s, 1)
	}
	for _, s := range []metrics.HistogramSeries{
		metrics.AddDuration("success", "redirect"), metrics.TransactionBytes("nft"),
		metrics.ServeDuration(), metrics.AuditDuration(),
		metrics.RepairDuration(metrics.CauseDrift),
	} {
		m.Observe(s, 1)
	}
	_, text := ask(m.Handler(func() {}), "GET", "/metrics", remote, "")
	for _, f := range metrics.All() {
		if f.Type != metrics.Histogram && !strings.Contains(text, "\n"+f.Name+"{") &&
			!strings.Contains(text, "\n"+f.Name+" ") {
			t.Errorf("the metric %s has no series", f.Name)
		}
		if !strings.Contains(text, "# HELP "+f.Name+" "+f.Help+"\n# TYPE "+f.Name+" "+
			string(f.Type)+"\n") {
			t.Errorf("the help or the type of %s differs from the table", f.Name)
		}
	}
	others := strings.Count(text, "# TYPE process_") + strings.Count(text, "# TYPE go_")
	if got := strings.Count(text, "# TYPE "); got != len(metrics.All())+others {
		t.Errorf("%d metrics, %d of them of the process and the Go runtime; want %d", got, others,
			len(metrics.All())+others)
	}
	for _, name := range []string{
		"process_open_fds", "process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("there is no metric %s", name)
		}
	}
}

// TestMetricsAreNotCompressed checks that responses are not compressed: a compressor would use a
// megabyte, and be kept from one scrape to the next.
func TestMetricsAreNotCompressed(t *testing.T) {
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	observe.NewMetrics("v1").Handler(func() {}).ServeHTTP(w, r)
	if encoding := w.Header().Get("Content-Encoding"); encoding != "" ||
		!strings.Contains(w.Body.String(), "sluice_build_info") {
		t.Errorf("the metrics are encoded with %q, want no encoding", encoding)
	}
}

// TestInitialSeries checks which series exist before the first event: a counter that appeared with
// its first event would have no increase, and a gauge that is 0 before the first measurement would
// trigger alerts.
func TestInitialSeries(t *testing.T) {
	refreshed := false
	_, text := ask(observe.NewMetrics("v1").Handler(func() {
		refreshed = true
	}), "GET", "/metrics", remote, "")
	for _, want := range []string{
		`sluice_adds_total{backend="nft",decision="redirect",result="error"} 0`,
		`istio_cni_installs_total{result="SUCCESS"} 0`,
		`sluice_build_info{goversion="go`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics do not contain %s", want)
		}
	}
	for _, name := range []string{
		"sluice_audit_last_completed_timestamp_seconds", "sluice_token_expiry_timestamp_seconds",
		"sluice_conflicting_writes_total{",
	} {
		if strings.Contains(text, name) {
			t.Errorf("the metrics contain %s before the first measurement or event", name)
		}
	}
	if !refreshed {
		t.Error("the handler did not call refresh")
	}
}

func TestReplacedSeriesEnd(t *testing.T) {
	m := observe.NewMetrics("v1")
	// checkReplace replaces the series of a metric, and checks that no others are left.
	checkReplace := func(pods ...string) {
		t.Helper()
		var values []metrics.CounterValue
		for _, pod := range pods {
			values = append(values, metrics.CounterValue{
				CounterSeries: metrics.RulePackets("shop", pod, rules.InboundExcludedPort),
				Value:         7,
			})
		}
		m.Replace("sluice_rule_packets_total", values)
		_, text := ask(m.Handler(func() {}), "GET", "/metrics", remote, "")
		var want strings.Builder
		for _, pod := range pods {
			fmt.Fprintf(&want, "sluice_rule_packets_total{direction=%q,outcome=%q,pod_name=%q,pod_namespace=%q} 7\n",
				"inbound", "excluded_port", pod, "shop")
		}
		var got strings.Builder
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "sluice_rule_packets_total") {
				got.WriteString(line)
			}
		}
		if got.String() != want.String() {
			t.Errorf("after Replace with the pods %v the series are\n%swant\n%s", pods, got.String(),
				want.String())
		}
	}
	checkReplace()
	checkReplace("a", "b")
	checkReplace("b")
}

// TestServeAnswersUntilItsContextEnds checks that Serve answers requests, and ends with its
// context.
func TestServeAnswersUntilItsContextEnds(t *testing.T) {
	var requests atomic.Int32
	address, stop := serve(t, &requests)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(answer.Body); string(text) != "hello" || err != nil {
		t.Errorf("the answer is %q, %v; want hello", text, err)
	}
	_ = answer.Body.Close()
	stop()
	if _, err := client.Do(r); err == nil {
		t.Error("the port is open after Serve has returned")
	}
}

// serve serves a handler that counts requests. It returns the address, and a function that waits
// until Serve has returned.
func serve(t *testing.T, requests *atomic.Int32) (address string, stop func()) {
	t.Helper()
	l, err := observe.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		hello := func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			_, _ = io.WriteString(w, "hello")
		}
		done <- observe.Port{
			Handler:  http.HandlerFunc(hello),
			FromNode: func(netip.Addr) bool { return false },
			Refused:  func() { t.Error("a connection was refused") },
			Report:   func(observe.Refusals) { t.Error("a refused connection was reported") },
		}.Serve(ctx, l)
	}()
	return strings.Replace(l.Addr().String(), "[::]", "127.0.0.1", 1), func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestAConnectionServesOneRequest checks that the limits of connections also limit requests: of
// many requests on one connection, only the first is answered.
func TestAConnectionServesOneRequest(t *testing.T) {
	var requests atomic.Int32
	address, stop := serve(t, &requests)
	defer stop()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const sent = 100
	if _, err := io.WriteString(conn, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", sent)); err != nil {
		t.Fatal(err)
	}
	// The server may reset the connection, because it does not read all requests.
	text, _ := io.ReadAll(conn)
	if n := requests.Load(); n != 1 || !strings.Contains(string(text), "\r\nConnection: close\r\n") {
		t.Errorf("%d of %d requests on one connection were answered, want 1; received\n%s", n, sent, text)
	}
}
