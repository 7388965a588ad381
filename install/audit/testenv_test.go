package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// testEnv is a node in memory. It must be used in a bubble of synctest.
type testEnv struct {
	t       testing.TB
	options audit.Options
	*audit.Auditor
	stop func()

	mu       sync.Mutex
	synced   bool
	items    map[string]podcache.Item
	objects  map[string][]byte
	spaces   map[string]*space // by path
	byNetNS  map[string]string // the path of a pod's namespace by UID
	version  int
	searches int
	inode    uint64 // of the latest namespace
	source   sandbox.Source
	created  time.Time // of all sandboxes
	used     time.Duration

	heard   chan watch.Event
	added   int      // number of namespaces added to the watcher
	acts    []string // deletions and labels
	refuse  error    // the error of these requests
	events  []cluster.Event
	counted map[string]float64
}

// space is a network namespace.
type space struct {
	w         *testEnv
	id        netns.ID
	addresses []netip.Addr
	// has contains the rules, stranger a route that cannot be removed, and istio Istio's rules.
	has        rules.Ruleset
	stranger   string
	istio      []string
	foreign    foreign.Effect // the effect of foreign rules
	refuse     error          // the error of Mend
	during     func()         // called during a method, if not nil
	slow       time.Duration  // processor time of Check
	applied    int
	mended     compat.Comparison // the argument of the last Mend
	searched   int               // calls of Bare
	checked    int
	rechecked  int   // subset of checked
	unreadable error // the error of Check
	inspected  int
	bypassing  established.Report // the result of EndConnections
	ended      int                // calls of EndConnections
	open       int
}

// node starts an auditor of a prepared environment.
func node(t *testing.T, env map[string]string, prepare ...func(*testEnv)) *testEnv {
	t.Helper()
	w := newTestEnv(t, env)
	for _, f := range prepare {
		f(w)
	}
	w.start()
	settle()
	return w
}

// newTestEnv returns an empty environment, whose auditor is not started.
func newTestEnv(t testing.TB, env map[string]string) *testEnv {
	t.Helper()
	values, err := settings.Read(func(name string) (string, bool) {
		if value, ok := env[name]; ok {
			return value, true
		}
		value, ok := map[string]string{
			"NODE_NAME": "node-1", "POD_NAME": "agent", "POD_NAMESPACE": "system",
		}[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := repair.New(values)
	if err != nil {
		t.Fatal(err)
	}
	w := &testEnv{
		t: t, synced: true, items: map[string]podcache.Item{}, objects: map[string][]byte{},
		spaces:  map[string]*space{},
		byNetNS: map[string]string{}, heard: make(chan watch.Event), counted: map[string]float64{},
	}
	dir := t.TempDir()
	detector, err := bypass.New(bypass.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.options = audit.Options{
		NodeName: "node-1", Compare: values.Bool("SLUICE_AUDIT"),
		Repair:   values.Bool("SLUICE_AUDIT_REPAIR"),
		Interval: values.Duration("SLUICE_AUDIT_INTERVAL"), Policy: policy,
		Counters: audit.CounterMetrics(values.Text("SLUICE_COUNTER_METRICS")),
		TopPods:  values.Int("SLUICE_COUNTER_METRICS_PODS"),
		Decide:   &decide.Settings{}, Backend: compat.BackendAuto,
		Records: record.In(dir), Repairs: repair.In(dir), Bypass: detector, Pods: w, Cluster: w,
		Find: w.find, Open: w.open,
		Used:   func() time.Duration { w.mu.Lock(); defer w.mu.Unlock(); return w.used },
		Listen: func() (audit.Events, error) { return ears{w}, nil }, Metrics: w, Log: zap.NewNop(),
	}
	return w
}

func (w *testEnv) start() {
	w.Auditor = audit.New(w.options)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(w.stop)
}

// again stops the auditor, and starts another one on the same node.
func (w *testEnv) again() {
	w.stop()
	w.start()
	settle()
}

// meshPod returns a pod that ADD would redirect.
func meshPod(name string) *decide.Pod {
	return &decide.Pod{
		Metadata: decide.Metadata{
			Namespace: "shop", Name: name, UID: "uid-" + name,
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		},
		Spec: decide.PodSpec{Containers: []decide.Container{{
			Name: "istio-proxy", Args: []string{"proxy", "sidecar"},
		}}},
		Status: decide.PodStatus{PodIP: "10.0.0.7"},
	}
}

var running = podcache.PodStatus{Phase: "Running"}

// broken returns the status of a pod whose validation has failed, in a run that began at the given
// time.
func broken(began time.Time) podcache.PodStatus {
	return podcache.PodStatus{Phase: "Pending", Init: []podcache.InitContainer{
		{Name: "istio-validation", Last: &podcache.Termination{ExitCode: 126, Started: began}},
	}}
}

// put adds a pod to the API server.
func (w *testEnv) put(p *decide.Pod, l podcache.PodStatus) {
	w.t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.version++
	m := p.Metadata
	key := m.Namespace + "/" + m.Name
	w.items[key] = podcache.Item{
		Ref:             source.Ref{Namespace: m.Namespace, Name: m.Name, UID: m.UID},
		ResourceVersion: fmt.Sprint(w.version), PodStatus: l,
	}
	w.objects[key] = text
	w.mu.Unlock()
	if w.Auditor != nil {
		w.Changed(m.Namespace, m.Name)
	}
}

func (w *testEnv) delete(p *decide.Pod) {
	w.mu.Lock()
	delete(w.items, p.Metadata.Namespace+"/"+p.Metadata.Name)
	w.mu.Unlock()
	w.Changed(p.Metadata.Namespace, p.Metadata.Name)
}

// home creates the namespace of a pod.
func (w *testEnv) home(p *decide.Pod) *space {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inode++
	s := &space{
		w: w, id: netns.ID{Dev: 4, Ino: w.inode},
		addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")},
	}
	path := "/run/netns/" + s.id.String()
	w.spaces[path], w.byNetNS[p.Metadata.UID] = s, path
	return s
}

// redirect returns the redirection of ADD for a pod with an IPv4 address.
func (w *testEnv) redirect(p *decide.Pod) rules.Redirect {
	r, _, err := decide.Parameters(p, []netip.Addr{netip.MustParseAddr("10.0.0.7")},
		w.options.Decide)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// redirected adds a running pod that ADD has redirected.
func (w *testEnv) redirected(p *decide.Pod) *space {
	s := w.home(p)
	r := w.redirect(p)
	w.set(func() { s.has = rules.MustCompile(r) })
	w.record(p, &r)
	w.put(p, running)
	return s
}

func (w *testEnv) record(p *decide.Pod, r *rules.Redirect) {
	m := p.Metadata
	kept := record.Record{
		Key: record.Key{ContainerID: "c-" + m.UID, IfName: "eth0"}, Netns: w.byNetNS[m.UID],
		Pod: record.Pod{Namespace: m.Namespace, Name: m.Name, UID: m.UID}, Outcome: "skip",
		Reason: "not-injected",
	}
	if r != nil {
		kept.Outcome, kept.Reason, kept.Redirect, kept.Backend = "redirect", "mesh-pod", r,
			compat.BackendNFT
	}
	if err := w.options.Records.Put(kept); err != nil {
		w.t.Fatal(err)
	}
}

// flush removes all rules, and reports it like the kernel.
func (w *testEnv) flush(s *space) {
	w.change(s, func() { s.has = rules.Ruleset{} })
}

// set changes state that the auditor may read concurrently.
func (w *testEnv) set(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *testEnv) change(s *space, do func()) {
	w.set(do)
	w.heard <- watch.Event{NS: s.id, Rules: true, Count: 1, PID: 4711, Process: "nft"}
	synctest.Wait()
}

// metric returns the current value of a metric.
func (w *testEnv) metric(name string) float64 {
	w.Measure()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counted[name]
}

// states returns the number of pods in each state.
func (w *testEnv) states() string {
	w.Measure()
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, s := range audit.States() {
		if n := w.counted["sluice_pods{"+string(s)+"}"]; n > 0 {
			list = append(list, fmt.Sprintf("%g %s", n, s))
		}
	}
	return strings.Join(list, ", ")
}

// told returns the reasons of the events since the last call.
func (w *testEnv) told() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, e := range w.events {
		list = append(list, e.Reason)
	}
	w.events = nil
	return strings.Join(list, ", ")
}

// done returns the requests that changed pods since the last call.
func (w *testEnv) done() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.acts, "; ")
	w.acts = nil
	return text
}

// settle waits for the auditor to finish its current work. A search for sandboxes waits for further
// ones for a moment.
func settle() { pass(10 * time.Millisecond) }

// pass advances the time.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
