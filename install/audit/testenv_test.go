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
	"github.com/sluice-mesh/sluice/install/rulelock"
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
	"github.com/sluice-mesh/sluice/rules/diff"
)

// testEnv simulates a node in memory. Except in a [kernelTestEnv], it must be used in a synctest
// bubble.
type testEnv struct {
	t       testing.TB
	options audit.Options
	*audit.Auditor
	stop func()

	mu           sync.Mutex
	synced       bool
	items        map[string]podcache.Item  // by namespace/name, as in objects
	objects      map[string][]byte         // JSON of the pods
	namespaces   map[string]*fakeNamespace // by path
	netnsPaths   map[string]string         // the paths of the pods' namespaces, by UID
	version      int                       // the last resourceVersion
	searches     int                       // calls of FindSandboxes
	inode        uint64                    // of the latest namespace
	source       sandbox.Source
	findErr      error         // the error of searches for existing sandboxes
	openErr      error         // the error of Open for existing sandboxes
	subscribeErr error         // the error of the subscription to events of a namespace
	created      time.Time     // of all sandboxes
	used         time.Duration // processor time of audits and requests
	afterStart   func()        // called by TestLocate after the first audits, if not nil
	// containerID is the ID of all sandboxes that are found.
	containerID string

	ruleEvents chan watch.Event
	added      int      // number of namespaces added to the watcher
	requests   []string // deletions and labels
	requestErr error    // the error of these requests
	// requestTime is the duration of these requests, and the processor time of other work of the
	// process meanwhile.
	requestTime time.Duration
	events      []cluster.Event
	counted     map[string]float64 // the metrics, by series
}

// fakeNamespace is a network namespace.
type fakeNamespace struct {
	env           *testEnv
	id            netns.ID
	name          string // of the pod
	addresses     []netip.Addr
	rules         rules.Ruleset
	foreignRoute  string             // a route that cannot be removed
	istio         []string           // the rules of Istio's programs
	addressesErr  error              // the error of Addresses
	hasNoRulesErr error              // the error of HasNoRules
	istioErr      error              // the error of Istio
	endErr        error              // the error of EndConnections
	foreign       foreign.Effect     // the effect of foreign rules
	repairErr     error              // the error of Repair
	failedRepair  compat.Result      // the result of Repair with repairErr
	repairedBy    compat.BackendName // of the last Repair
	duringRepair  func()             // called at the start of Repair, if not nil
	afterRepair   func()             // called after Repair has changed the rules, if not nil
	// duringForeign is called during Foreign, if not nil.
	duringForeign   func()
	checkTime       time.Duration      // duration and processor time of Check
	applied         int                // calls of Repair
	repairedWith    compat.Comparison  // the argument of the last Repair
	hasNoRulesCalls int                // calls of HasNoRules
	checked         int                // calls of Check
	checkedSince    int                // calls of Check with a generation
	checkErr        error              // the error of Check
	inspected       int                // calls of Foreign that inspected the rules
	inspectedEqual  bool               // the argument equal of the last of these calls
	budgets         []diff.Budget      // of these calls
	generation      uint32             // generation of nftables that Check returns
	bypassing       established.Report // the result of EndConnections
	ended           int                // calls of EndConnections
	open            int                // calls of Open minus calls of Close
}

// completeChain notes that a repair completed the chain at the given time, and that the chain was
// still complete ten minutes later.
func (env *testEnv) completeChain(at time.Time) {
	env.options.Bypass.NoteChain(bypass.ChainCheck{At: at, Complete: true, Repaired: true})
	env.options.Bypass.NoteChain(bypass.ChainCheck{At: at.Add(10 * time.Minute), Complete: true})
}

// startTestEnv starts an auditor in an environment that the prepare functions have changed.
func startTestEnv(t *testing.T, environ map[string]string, prepare ...func(*testEnv)) *testEnv {
	t.Helper()
	env := newTestEnv(t, environ)
	for _, f := range prepare {
		f(env)
	}
	env.start()
	settle()
	return env
}

// newTestEnv returns an empty environment, whose auditor is not started.
func newTestEnv(t testing.TB, environ map[string]string) *testEnv {
	t.Helper()
	values, err := settings.Read(func(name string) (string, bool) {
		if value, ok := environ[name]; ok {
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
	options, err := audit.FromSettings(values)
	if err != nil {
		t.Fatal(err)
	}
	env := &testEnv{
		t: t, synced: true, items: map[string]podcache.Item{}, objects: map[string][]byte{},
		namespaces: map[string]*fakeNamespace{},
		netnsPaths: map[string]string{}, ruleEvents: make(chan watch.Event), counted: map[string]float64{},
	}
	dir := t.TempDir()
	detector, err := bypass.New(bypass.Options{})
	if err != nil {
		t.Fatal(err)
	}
	options.Decide, options.Backend = &decide.Settings{}, compat.BackendAuto
	options.Records, options.Repairs, options.Bypass = record.In(dir), repair.StoreIn(dir), detector
	options.Pods, options.Cluster, options.Metrics, options.Log = env, env, env, zap.NewNop()
	options.FindSandboxes, options.Open = env.find, env.open
	options.ProcessorTime = func() time.Duration { env.mu.Lock(); defer env.mu.Unlock(); return env.used }
	options.RuleLock = new(rulelock.Lock)
	options.Listen = func() (watch.Events, error) { return fakeSubscription{env}, nil }
	env.options = options
	return env
}

func (env *testEnv) start() {
	env.Auditor = audit.New(env.options)
	ctx, cancel := context.WithCancel(env.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		env.Run(ctx)
	}()
	env.stop = func() {
		cancel()
		<-done
	}
	env.t.Cleanup(env.stop)
}

// restart stops the auditor, and starts a new one on the same node.
func (env *testEnv) restart() {
	env.stop()
	env.start()
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

// put adds or changes a pod in the API server.
func (env *testEnv) put(p *decide.Pod, status podcache.PodStatus) {
	env.t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		env.t.Fatal(err)
	}
	env.mu.Lock()
	env.version++
	m := p.Metadata
	key := m.Namespace + "/" + m.Name
	env.items[key] = podcache.Item{
		Ref:             source.Ref{Namespace: m.Namespace, Name: m.Name, UID: m.UID},
		ResourceVersion: fmt.Sprint(env.version), PodStatus: status,
	}
	env.objects[key] = text
	env.mu.Unlock()
	if env.Auditor != nil {
		env.Changed(m.Namespace, m.Name)
	}
}

// delete deletes a pod as the kubelet does: it removes the object after the sandbox has ended.
func (env *testEnv) delete(p *decide.Pod) {
	env.removeRecord(p)
	env.set(func() { delete(env.namespaces, env.netnsPaths[p.Metadata.UID]) })
	env.forceDelete(p)
}

// forceDelete removes only the object of a pod from the API server.
func (env *testEnv) forceDelete(p *decide.Pod) {
	env.set(func() { delete(env.items, p.Metadata.Namespace+"/"+p.Metadata.Name) })
	env.Changed(p.Metadata.Namespace, p.Metadata.Name)
}

// addSandbox creates the namespace of a pod.
func (env *testEnv) addSandbox(p *decide.Pod) *fakeNamespace {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.inode++
	s := &fakeNamespace{
		env: env, id: netns.ID{Dev: 4, Ino: env.inode}, name: p.Metadata.Name,
		addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")},
	}
	path := "/run/netns/" + s.id.String()
	env.namespaces[path], env.netnsPaths[p.Metadata.UID] = s, path
	return s
}

// redirect returns the redirection of ADD for a pod with an IPv4 address.
func (env *testEnv) redirect(p *decide.Pod) rules.Redirect {
	r, _, err := decide.Parameters(p, []netip.Addr{netip.MustParseAddr("10.0.0.7")},
		env.options.Decide)
	if err != nil {
		env.t.Fatal(err)
	}
	return r
}

// addRedirected adds a running pod that ADD has redirected.
func (env *testEnv) addRedirected(p *decide.Pod) *fakeNamespace {
	s := env.addSandbox(p)
	r := env.redirect(p)
	env.set(func() { s.rules = rules.MustCompile(r) })
	env.record(p, &r)
	env.put(p, running)
	return s
}

// record stores the record of an ADD that has redirected the pod as r says, or has not redirected
// it if r is nil.
func (env *testEnv) record(p *decide.Pod, r *rules.Redirect) {
	m := p.Metadata
	kept := record.Record{
		Key: record.Key{ContainerID: "c-" + m.UID, IfName: "eth0"}, Netns: env.netnsPaths[m.UID],
		Pod: record.Pod{Namespace: m.Namespace, Name: m.Name, UID: m.UID}, Outcome: "skip",
		Reason: "not-injected",
	}
	if r != nil {
		kept.Outcome, kept.Reason, kept.Redirect, kept.Backend = "redirect", "mesh-pod", r,
			compat.BackendNFT
	}
	if err := env.options.Records.Put(kept); err != nil {
		env.t.Fatal(err)
	}
}

// flush removes all rules, and reports the change as the kernel does.
func (env *testEnv) flush(s *fakeNamespace) {
	env.change(s, func() { s.rules = rules.Ruleset{} })
}

// set changes state that the auditor may read concurrently.
func (env *testEnv) set(do func()) {
	env.mu.Lock()
	defer env.mu.Unlock()
	do()
}

// change changes a namespace, and reports a change of its rules as the kernel does.
func (env *testEnv) change(s *fakeNamespace, do func()) {
	env.set(do)
	env.ruleEvents <- watch.Event{NS: s.id, Rules: true, Count: 1, PID: 4711, Process: "nft"}
	synctest.Wait()
}

// metric returns the current value of a series. It fails the test if package metrics does not
// define the series: such a series would always be 0.
func (env *testEnv) metric(series string) float64 {
	env.t.Helper()
	name, rest, _ := strings.Cut(series, "{")
	env.checkLabels(strings.TrimSuffix(name, "_count"), strings.Split(strings.TrimSuffix(rest, "}"), ","))
	env.Measure()
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.counted[series]
}

// states returns the number of pods in each state.
func (env *testEnv) states() string {
	env.Measure()
	env.mu.Lock()
	defer env.mu.Unlock()
	var list []string
	for _, s := range audit.States() {
		if n := env.counted["sluice_pods{"+string(s)+"}"]; n > 0 {
			list = append(list, fmt.Sprintf("%g %s", n, s))
		}
	}
	return strings.Join(list, ", ")
}

// takeEvents returns the reasons of the events since the last call.
func (env *testEnv) takeEvents() string {
	env.mu.Lock()
	defer env.mu.Unlock()
	var list []string
	for _, e := range env.events {
		list = append(list, e.Reason)
	}
	env.events = nil
	return strings.Join(list, ", ")
}

// takeRequests returns the requests to delete or label pods since the last call.
func (env *testEnv) takeRequests() string {
	env.mu.Lock()
	defer env.mu.Unlock()
	text := strings.Join(env.requests, "; ")
	env.requests = nil
	return text
}

// settle waits until the auditor has finished its current work, including a search for sandboxes,
// which begins only batchDelay after the request.
func settle() { advance(10 * time.Millisecond) }

// advance advances the time, and waits until the auditor is idle.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
