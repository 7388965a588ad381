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
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/rulelock"
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

// A testEnv simulates a node. Network namespaces, rules and ztunnel's socket are real; the API
// server and the node's rules for probes are in memory.
type testEnv struct {
	t       testing.TB
	options ambient.Options
	*ambient.Node
	ztunnels *ztunnel.Server
	socket   string
	host     netns.ID // the network namespace that counts as the node's
	endRun   func()
	stop     func() // ends Run, and closes the node

	mu         sync.Mutex
	synced     bool
	version    int
	objects    map[string]*decide.Pod // by namespace/name
	items      map[string]podcache.Item
	namespaces map[string]string          // the namespaces' values of modeLabel
	sandboxes  map[string]sandbox.Sandbox // by UID
	probes     map[string][]netip.Addr    // by UID
	replaced   map[string][]netip.Addr    // passed to the node's rules at the start
	patches    []string                   // name=value
	events     []cluster.Event
	searches   int    // calls of find
	onFind     func() // called by find, unless nil
	onPatch    func() // called by AnnotatePod, unless nil
	onItem     func() // called by Item, unless nil
	// onRemove is called with a UID by Remove of probes, unless nil. It returns Remove's error.
	onRemove func(uid string) error
	reads    int // calls of Namespace
	lookups  int // calls of Item
	// namespaceErr is returned by Namespace, unless nil. If it is a context's error, Namespace
	// first waits for the end of the context.
	namespaceErr error
	podErr       error // returned by Pod, unless nil
	patchErr     error // returned by AnnotatePod
	hostErr      error // returned by the methods of probes
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	netnstest.RequireRoot(t)
	env := &testEnv{
		t: t, synced: true, objects: map[string]*decide.Pod{}, items: map[string]podcache.Item{},
		namespaces: map[string]string{}, sandboxes: map[string]sandbox.Sandbox{},
		probes: map[string][]netip.Addr{},
	}
	env.socket = newServer(t, env)
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	settings := decide.DefaultAmbientSettings()
	env.options = ambient.Options{
		NodeName: "node-1",
		Decide:   &decide.Settings{Ambient: &settings, ExcludeNamespaces: []string{"kube-system"}},
		Backend:  backend, Pods: env, Cluster: env, Ztunnel: env.ztunnels, Host: probes{env}, Find: env.find,
		IsHost:          func(id netns.ID) bool { return id == env.host },
		EnrollAttempted: func(error) {}, RulesChanged: func(string) {},
		Found: func(sandbox.Sandbox) {}, RuleLock: new(rulelock.Lock),
		Log: zap.NewNop(), AddTimeout: 20 * time.Second, Interval: time.Hour,
	}
	return env
}

// newServer replaces the server for ztunnel, as a restart of the agent does, and returns its
// socket.
func newServer(t testing.TB, env *testEnv) string {
	t.Helper()
	env.ztunnels = ztunnel.New(zap.NewNop(), func(int) {})
	env.options.Ztunnel = env.ztunnels
	socket := filepath.Join(t.TempDir(), "z", "ztunnel.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = env.ztunnels.Serve(ctx, socket) }()
	t.Cleanup(func() { cancel(); <-done })
	return socket
}

// start starts the node's agent.
func (env *testEnv) start() {
	env.Node = ambient.New(env.options)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); env.Run(ctx) }()
	env.endRun = func() {
		cancel()
		<-done
	}
	env.stop = sync.OnceFunc(func() {
		env.endRun()
		env.Close()
	})
	env.t.Cleanup(env.stop)
}

// put adds a pod to the API server, or changes the pod. The label phase sets the pod's phase.
func (env *testEnv) put(name string, changes ...func(*decide.Pod)) {
	env.mu.Lock()
	key := "shop/" + name
	p := &decide.Pod{Metadata: decide.Metadata{
		Namespace: "shop", Name: name, UID: "uid-" + name,
		Annotations: map[string]string{}, Labels: map[string]string{modeLabel: "ambient"},
	}, Spec: decide.PodSpec{ServiceAccountName: "sa"}}
	if old := env.objects[key]; old != nil {
		p = clone(old)
	}
	for _, change := range changes {
		change(p)
	}
	env.objects[key] = p
	env.version++
	phase := "Pending"
	if len(p.Addresses()) > 0 {
		phase = "Running"
	}
	if p.Metadata.Labels["phase"] != "" {
		phase = p.Metadata.Labels["phase"]
	}
	env.items[key] = podcache.Item{
		Ref:             source.Ref{Namespace: "shop", Name: name, UID: p.Metadata.UID},
		ResourceVersion: fmt.Sprint(env.version), PodStatus: podcache.PodStatus{Phase: phase},
	}
	env.mu.Unlock()
	if env.Node != nil {
		env.Changed("shop", name)
	}
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

func labeled(key, value string) func(*decide.Pod) {
	return func(p *decide.Pod) { p.Metadata.Labels[key] = value }
}

func (env *testEnv) delete(name string) {
	env.mu.Lock()
	delete(env.objects, "shop/"+name)
	delete(env.items, "shop/"+name)
	env.mu.Unlock()
	env.Changed("shop", name)
}

// addSandbox makes the agent find the network namespace as the pod's sandbox, and returns ns.
func (env *testEnv) addSandbox(name string, ns *netns.NS) *netns.NS {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.sandboxes["uid-"+name] = sandbox.Sandbox{
		Pod:  sandbox.Pod{Namespace: "shop", Name: name, UID: "uid-" + name},
		Path: fmt.Sprintf("/proc/self/fd/%d", ns.FD()), ID: ns.ID(), Source: sandbox.Runtime,
	}
	return ns
}

func (env *testEnv) add(name string, ns *netns.NS) (agent.Enrollment, error) {
	return env.addWithin(context.Background(), name, ns)
}

func (env *testEnv) addWithin(
	ctx context.Context, name string, ns *netns.NS,
) (agent.Enrollment, error) {
	return env.Add(ctx, source.Ref{
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

// The methods of [podcache.Reader].

func (env *testEnv) Synced() bool { env.mu.Lock(); defer env.mu.Unlock(); return env.synced }

func (env *testEnv) Pods() []podcache.Item {
	env.mu.Lock()
	defer env.mu.Unlock()
	return slices.Collect(maps.Values(env.items))
}

func (env *testEnv) Item(namespace, name string) (podcache.Item, bool) {
	env.mu.Lock()
	onItem := env.onItem
	env.mu.Unlock()
	if onItem != nil {
		onItem()
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	env.lookups++
	item, ok := env.items[namespace+"/"+name]
	return item, ok
}

func (env *testEnv) Namespace(ctx context.Context, name string) ([]byte, bool, error) {
	env.mu.Lock()
	env.reads++
	err := env.namespaceErr
	env.mu.Unlock()
	if errors.Is(err, context.DeadlineExceeded) {
		<-ctx.Done()
	}
	if err != nil {
		return nil, true, source.WithKind(source.Unavailable, err)
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	data, err := json.Marshal(decide.Namespace{Metadata: decide.Metadata{
		Name: name, Labels: map[string]string{modeLabel: env.namespaces[name]},
	}})
	return data, false, err
}

func (env *testEnv) Pod(_ context.Context, ref source.Ref) ([]byte, bool, error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.podErr != nil {
		return nil, true, source.WithKind(source.Unavailable, env.podErr)
	}
	p := env.objects[ref.Namespace+"/"+ref.Name]
	if p == nil {
		return nil, false, source.WithKind(source.NotFound, errors.New("no such pod"))
	}
	if !p.HasUID(ref.UID) {
		return nil, false, source.WithKind(source.Replaced, errors.New("the pod was replaced"))
	}
	data, err := json.Marshal(p)
	return data, false, err
}

// The methods of [ambient.Cluster].

// AnnotatePod changes the pod as the API server does.
func (env *testEnv) AnnotatePod(
	ctx context.Context, name cluster.Name, uid, key string, value *string,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	env.mu.Lock()
	onPatch := env.onPatch
	env.mu.Unlock()
	if onPatch != nil {
		onPatch()
	}
	env.mu.Lock()
	p := env.objects[name.Namespace+"/"+name.Name]
	text := "none"
	if value != nil {
		text = *value
	}
	env.patches = append(env.patches, name.Name+"="+text)
	err := env.patchErr
	if err == nil && (p == nil || p.Metadata.UID != uid || key != redirection) {
		err = fmt.Errorf("patch: %w", &cluster.StatusError{Code: 404})
	}
	env.mu.Unlock()
	if err != nil {
		return err
	}
	env.put(name.Name, func(p *decide.Pod) {
		if value == nil {
			delete(p.Metadata.Annotations, key)
		} else {
			p.Metadata.Annotations[key] = *value
		}
	})
	return nil
}

func (env *testEnv) SendEvent(ctx context.Context, e cluster.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	env.events = append(env.events, e)
	return nil
}

// find returns the sandboxes of the pods, and an error for each pod without a sandbox.
func (env *testEnv) find(
	_ context.Context, list []sandbox.Pod,
) (map[sandbox.Pod]sandbox.Sandbox, map[sandbox.Pod]sandbox.Missing) {
	env.mu.Lock()
	onFind := env.onFind
	env.mu.Unlock()
	if onFind != nil {
		onFind()
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	env.searches++
	found, missing := map[sandbox.Pod]sandbox.Sandbox{}, map[sandbox.Pod]sandbox.Missing{}
	for _, p := range list {
		if sb, ok := env.sandboxes[p.UID]; ok && sb.Pod == p {
			found[p] = sb
		} else {
			missing[p] = sandbox.Missing{Err: errors.New("no process")}
		}
	}
	return found, missing
}

// probes represents the node's rules for probes.
type probes struct{ env *testEnv }

func (h probes) Replace(pods map[string][]netip.Addr) error {
	h.env.mu.Lock()
	defer h.env.mu.Unlock()
	h.env.probes, h.env.replaced = maps.Clone(pods), maps.Clone(pods)
	return h.env.hostErr
}

func (h probes) Set(uid string, addresses []netip.Addr) error {
	h.env.mu.Lock()
	defer h.env.mu.Unlock()
	if h.env.hostErr != nil {
		return h.env.hostErr
	}
	h.env.probes[uid] = addresses
	if len(addresses) == 0 {
		delete(h.env.probes, uid)
	}
	return nil
}

func (h probes) Remove(uid string) error {
	h.env.mu.Lock()
	if h.env.onRemove != nil {
		if err := h.env.onRemove(uid); err != nil {
			h.env.mu.Unlock()
			return err
		}
	}
	h.env.mu.Unlock()
	return h.Set(uid, nil)
}

// probed returns the addresses of a pod in the node's rules for probes.
func (env *testEnv) probed(name string) []netip.Addr {
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.probes["uid-"+name]
}

// annotation returns the value of the annotation that reports the pod's redirection.
func (env *testEnv) annotation(name string) string {
	env.mu.Lock()
	defer env.mu.Unlock()
	if p := env.objects["shop/"+name]; p != nil {
		return p.Metadata.Annotations[redirection]
	}
	return "no pod"
}

// patched returns all patches of the annotation, as name=value.
func (env *testEnv) patched() string {
	env.mu.Lock()
	defer env.mu.Unlock()
	return strings.Join(env.patches, " ")
}

// hasRules reports whether a namespace has exactly the rules of ambient mode with the default
// parameters and the changes.
func (env *testEnv) hasRules(ns *netns.NS, change ...func(*rules.Ambient)) bool {
	env.t.Helper()
	a := rules.DefaultAmbient()
	for _, f := range change {
		f(&a)
	}
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		env.t.Fatal(err)
	}
	found, err := env.options.Backend.Check(ns, rs, compat.Snapshot{})
	if err != nil {
		env.t.Fatal(err)
	}
	return len(found.Differences) == 0
}

// hasNoRules reports whether a namespace has no rules of Sluice.
func hasNoRules(t testing.TB, ns *netns.NS) bool {
	t.Helper()
	installed, err := compat.InstalledBackends(ns)
	if err != nil {
		t.Fatal(err)
	}
	return len(installed) == 0
}

// rulesOf returns the rules of a pod for the audit. The caller releases them unless they are nil.
func (env *testEnv) rulesOf(uid string) *audit.AmbientPod {
	env.t.Helper()
	r, err := env.Rules(env.t.Context(), uid)
	if err != nil {
		env.t.Fatal(err)
	}
	return r
}
