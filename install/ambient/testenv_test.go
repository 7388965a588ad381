package ambient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	modeLabel   = "istio.io/dataplane-mode"
	redirection = "ambient.istio.io/redirection"
)

// A testEnv is a node. Namespaces, rules and ztunnel's socket are real; the API server and the
// node's rules for probes are in memory.
type testEnv struct {
	t       testing.TB
	options ambient.Options
	*ambient.Node
	ztunnels *ztunnel.Server
	socket   string
	host     netns.ID
	stop     func()
	halt     func() func() // ends Run, and returns Close

	mu         sync.Mutex
	synced     bool
	version    int
	objects    map[string]*decide.Pod // by namespace/name
	items      map[string]podcache.Item
	namespaces map[string]string          // the namespaces' labels
	sandboxes  map[string]sandbox.Sandbox // by UID
	probes     map[string][]netip.Addr    // by UID
	replaced   map[string][]netip.Addr    // passed to the node's rules at the start
	patches    []string                   // name=value
	events     []event
	refuse     error // the error of patches
	unwritable error // the error of the node's rules
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	netnstest.RequireRoot(t)
	w := &testEnv{
		t: t, synced: true, objects: map[string]*decide.Pod{}, items: map[string]podcache.Item{},
		namespaces: map[string]string{}, sandboxes: map[string]sandbox.Sandbox{},
		probes: map[string][]netip.Addr{},
	}
	w.socket = newServer(t, w)
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	settings := decide.DefaultAmbientSettings()
	w.options = ambient.Options{
		NodeName: "node-1",
		Decide:   &decide.Settings{Ambient: &settings, ExcludeNamespaces: []string{"kube-system"}},
		Backend:  backend, Pods: pods{w}, Cluster: w, Ztunnel: w.ztunnels, Host: probes{w}, Find: w.find,
		IsHost: func(id netns.ID) bool { return id == w.host }, Enrolled: func(error) {}, RulesChanged: func(string) {},
		Log: zap.NewNop(), AddTime: 20 * time.Second, Interval: time.Hour,
	}
	return w
}

type event = cluster.Event

// newServer replaces the server for ztunnel, like another agent, and returns its socket.
func newServer(t testing.TB, w *testEnv) string {
	t.Helper()
	w.ztunnels = ztunnel.New(zap.NewNop(), ztunnel.Options{})
	w.options.Ztunnel = w.ztunnels
	socket := filepath.Join(t.TempDir(), "z", "ztunnel.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.ztunnels.Serve(ctx, socket) }()
	t.Cleanup(func() { cancel(); <-done })
	return socket
}

// start starts the node's agent.
func (w *testEnv) start() {
	w.Node = ambient.New(w.options)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	w.halt = func() func() {
		cancel()
		<-done
		return w.Close
	}
	w.stop = sync.OnceFunc(func() { w.halt()() })
	w.t.Cleanup(w.stop)
}

// put adds a changed pod to the API server, and returns it.
func (w *testEnv) put(name string, changes ...func(*decide.Pod)) *decide.Pod {
	w.mu.Lock()
	key := "shop/" + name
	p := &decide.Pod{Metadata: decide.Metadata{
		Namespace: "shop", Name: name, UID: "uid-" + name,
		Annotations: map[string]string{}, Labels: map[string]string{modeLabel: "ambient"},
	}, Spec: decide.PodSpec{ServiceAccountName: "sa"}}
	if old := w.objects[key]; old != nil {
		p = clone(old)
	}
	for _, change := range changes {
		change(p)
	}
	w.objects[key] = p
	w.version++
	phase := "Pending"
	if len(p.Addresses()) > 0 {
		phase = "Running"
	}
	if p.Metadata.Labels["phase"] != "" {
		phase = p.Metadata.Labels["phase"]
	}
	w.items[key] = podcache.Item{
		Ref:             source.Ref{Namespace: "shop", Name: name, UID: p.Metadata.UID},
		ResourceVersion: fmt.Sprint(w.version), PodStatus: podcache.PodStatus{Phase: phase},
	}
	w.mu.Unlock()
	if w.Node != nil {
		w.Changed("shop", name)
	}
	return p
}

func clone(p *decide.Pod) *decide.Pod {
	c := *p
	c.Metadata.Annotations = maps.Clone(p.Metadata.Annotations)
	c.Metadata.Labels = maps.Clone(p.Metadata.Labels)
	return &c
}

func running(address string) func(*decide.Pod) {
	return func(p *decide.Pod) { p.Status.PodIP = address }
}

func annotated(key, value string) func(*decide.Pod) {
	return func(p *decide.Pod) { p.Metadata.Annotations[key] = value }
}

func labelled(key, value string) func(*decide.Pod) {
	return func(p *decide.Pod) { p.Metadata.Labels[key] = value }
}

func (w *testEnv) delete(name string) {
	w.mu.Lock()
	delete(w.objects, "shop/"+name)
	delete(w.items, "shop/"+name)
	w.mu.Unlock()
	w.Changed("shop", name)
}

// home adds a sandbox of the pod that the agent can find.
func (w *testEnv) home(name string, ns *netns.NS) *netns.NS {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes["uid-"+name] = sandbox.Sandbox{
		Pod:  sandbox.Pod{Namespace: "shop", Name: name, UID: "uid-" + name},
		Path: fmt.Sprintf("/proc/self/fd/%d", ns.FD()), ID: ns.ID(), Source: sandbox.Runtime,
	}
	return ns
}

func (w *testEnv) add(name string, ns *netns.NS) (agent.Enrolment, error) {
	return w.Add(context.Background(), source.Ref{
		Namespace: "shop", Name: name, UID: "uid-" + name,
	}, ns, addresses("10.0.0.7"))
}

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// Methods of the source of pods.

func (w *testEnv) Synced() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.synced }

func (w *testEnv) Pods() []podcache.Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.items))
}

func (w *testEnv) Item(namespace, name string) (podcache.Item, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	item, ok := w.items[namespace+"/"+name]
	return item, ok
}

func (w *testEnv) Namespace(_ context.Context, name string) ([]byte, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, err := json.Marshal(decide.Namespace{Metadata: decide.Metadata{
		Name: name, Labels: map[string]string{modeLabel: w.namespaces[name]},
	}})
	return data, false, err
}

// pods is a separate type, because Pod is also a method of the node.
type pods struct{ *testEnv }

func (w pods) Pod(_ context.Context, ref source.Ref) ([]byte, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.objects[ref.Namespace+"/"+ref.Name]
	if p == nil {
		return nil, false, source.WithKind(source.NotFound, errors.New("no such pod"))
	}
	if !p.HasUID(ref.UID) {
		return nil, false, source.WithKind(source.Replaced, errors.New("another pod"))
	}
	data, err := json.Marshal(p)
	return data, false, err
}

// Methods of the API server.

// AnnotatePod changes the pod like the API server.
func (w *testEnv) AnnotatePod(
	_ context.Context, name cluster.Name, uid, key string, value *string,
) error {
	w.mu.Lock()
	p := w.objects[name.Namespace+"/"+name.Name]
	text := "none"
	if value != nil {
		text = *value
	}
	w.patches = append(w.patches, name.Name+"="+text)
	err := w.refuse
	if err == nil && (p == nil || p.Metadata.UID != uid || key != redirection) {
		err = fmt.Errorf("patch: %w", &cluster.StatusError{Code: 404})
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.put(name.Name, func(p *decide.Pod) {
		if value == nil {
			delete(p.Metadata.Annotations, key)
		} else {
			p.Metadata.Annotations[key] = *value
		}
	})
	return nil
}

func (w *testEnv) SendEvent(_ context.Context, e cluster.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	return nil
}

// find searches for sandboxes.
func (w *testEnv) find(
	_ context.Context, list []sandbox.Pod,
) (map[string]sandbox.Sandbox, []sandbox.Missing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string]sandbox.Sandbox{}
	var missing []sandbox.Missing
	for _, p := range list {
		if sb, ok := w.sandboxes[p.UID]; ok && sb.Pod == p {
			found[p.UID] = sb
		} else {
			missing = append(missing, sandbox.Missing{Pod: p, Err: errors.New("no process")})
		}
	}
	return found, missing
}

// probes represents the node's rules for probes.
type probes struct{ w *testEnv }

func (h probes) Replace(pods map[string][]netip.Addr) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.probes, h.w.replaced = maps.Clone(pods), maps.Clone(pods)
	return h.w.unwritable
}

func (h probes) Set(uid string, addresses []netip.Addr) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if h.w.unwritable != nil {
		return h.w.unwritable
	}
	h.w.probes[uid] = addresses
	if len(addresses) == 0 {
		delete(h.w.probes, uid)
	}
	return nil
}

func (h probes) Remove(uid string) error { return h.Set(uid, nil) }

// Conditions of the tests.

func (w *testEnv) probed(name string) []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.probes["uid-"+name]
}

func (w *testEnv) annotation(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.objects["shop/"+name]; p != nil {
		return p.Metadata.Annotations[redirection]
	}
	return "no pod"
}

func (w *testEnv) patched() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.patches, " ")
}

// has reports whether a namespace has exactly the rules of ambient mode.
func (w *testEnv) has(ns *netns.NS, change ...func(*rules.Ambient)) bool {
	w.t.Helper()
	a := rules.DefaultAmbient()
	for _, f := range change {
		f(&a)
	}
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		w.t.Fatal(err)
	}
	found, err := w.options.Backend.Check(ns, rs, compat.Snapshot{})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(found.Differences) == 0
}

// bare reports whether a namespace has no rules of Sluice.
func bare(t testing.TB, ns *netns.NS) bool {
	t.Helper()
	installed, err := compat.InstalledBackends(ns)
	if err != nil {
		t.Fatal(err)
	}
	return len(installed) == 0
}
