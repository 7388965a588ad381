package audit_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/metrics/metricstest"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// errNoSandbox is the reason why find does not find the sandbox of a pod that has none.
var errNoSandbox = errors.New("no sandbox")

func (env *testEnv) Synced() bool { env.mu.Lock(); defer env.mu.Unlock(); return env.synced }

func (env *testEnv) Pods() []podcache.Item {
	env.mu.Lock()
	defer env.mu.Unlock()
	return slices.Collect(maps.Values(env.items))
}

func (env *testEnv) Item(namespace, name string) (podcache.Item, bool) {
	env.mu.Lock()
	defer env.mu.Unlock()
	item, ok := env.items[namespace+"/"+name]
	return item, ok
}

func (env *testEnv) Pod(_ context.Context, ref source.Ref) (text []byte, fetched bool, err error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	if text := env.objects[ref.Namespace+"/"+ref.Name]; text != nil {
		return text, false, nil
	}
	return nil, false, source.WithKind(source.NotFound, errors.New("not found"))
}

func (env *testEnv) Namespace(context.Context, string) (text []byte, fetched bool, err error) {
	return []byte(`{"metadata":{"name":"shop","labels":{"mesh":"yes"}}}`), false, nil
}

func (env *testEnv) find(
	_ context.Context, pods []sandbox.Pod,
) (map[sandbox.Pod]sandbox.Sandbox, map[sandbox.Pod]sandbox.Missing) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.searches++
	found, missing := map[sandbox.Pod]sandbox.Sandbox{}, map[sandbox.Pod]sandbox.Missing{}
	for _, p := range pods {
		path, ok := env.netnsPaths[p.UID]
		switch {
		case ok && env.findErr != nil:
			missing[p] = sandbox.Missing{Err: env.findErr}
		case ok && p.Unproven && env.namespaces[path] != nil && !env.namespaces[path].belongsTo(p):
			missing[p] = sandbox.Missing{Err: errNoSandbox}
		case ok && env.namespaces[path] != nil:
			found[p] = sandbox.Sandbox{
				Pod: p, Path: path, ID: env.namespaces[path].id, Source: env.source, Created: env.created,
				ContainerID: env.containerID,
			}
		case ok:
			missing[p] = sandbox.Missing{Err: fs.ErrNotExist, Ended: true}
		default:
			missing[p] = sandbox.Missing{Err: errNoSandbox}
		}
	}
	return found, missing
}

// belongsTo reports whether the sandbox belongs to an unproven pod, as package sandbox decides.
func (s *fakeNamespace) belongsTo(p sandbox.Pod) bool {
	if s.env.source == sandbox.Proc {
		return slices.Contains(s.addresses, p.Address)
	}
	return s.name == p.Name
}

func (env *testEnv) open(s sandbox.Sandbox) (audit.Namespace, error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	found := env.namespaces[s.Path]
	if found == nil {
		return nil, fs.ErrNotExist
	}
	if env.openErr != nil {
		return nil, env.openErr
	}
	found.open++
	return found, nil
}

func (s *fakeNamespace) NS() *netns.NS { return nil }

func (s *fakeNamespace) Close() error { s.env.mu.Lock(); defer s.env.mu.Unlock(); s.open--; return nil }

func (s *fakeNamespace) Addresses() ([]netip.Addr, error) {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	return s.addresses, s.addressesErr
}

func (s *fakeNamespace) HasNoRules() (bool, error) {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	s.hasNoRulesCalls++
	return len(s.rules.Tables) == 0, s.hasNoRulesErr
}

func (s *fakeNamespace) Foreign(_ rules.Ruleset, equal bool, last *foreign.Snapshot, b diff.Budget) foreign.Snapshot {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	if last != nil && !last.Exhausted {
		return *last
	}
	s.inspected, s.inspectedEqual = s.inspected+1, equal
	s.budgets = append(s.budgets, b)
	if s.duringForeign != nil {
		s.duringForeign()
	}
	return foreign.Snapshot{Effect: s.foreign}
}

func (s *fakeNamespace) EndConnections(rules.Ruleset, established.Options) (established.Report, error) {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	s.ended++
	return s.bypassing, s.endErr
}

func (s *fakeNamespace) Istio() ([]string, error) { return s.istio, s.istioErr }

func (s *fakeNamespace) Check(
	backend compat.BackendName, want rules.Ruleset, last compat.Snapshot,
) (compat.Comparison, error) {
	time.Sleep(s.checkTime)
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	s.checked++
	if last.Generation != 0 {
		s.checkedSince++
	}
	s.env.used += s.checkTime
	if s.checkErr != nil {
		return compat.Comparison{}, s.checkErr
	}
	if backend == compat.BackendAuto {
		backend = compat.BackendNFT
	}
	got := s.rules
	if s.foreignRoute != "" {
		got.Routing.Others = []string{s.foreignRoute}
	}
	c := compat.Comparison{
		Backend: backend, Differences: rules.Compare(want, got), HasRules: len(got.Tables) > 0,
		Snapshot: compat.Snapshot{Generation: s.generation},
	}
	if len(c.Differences) == 0 && want.HasCounters() {
		c.Packets = rules.PacketsByRule(want, got)
	}
	return c, nil
}

func (s *fakeNamespace) Repair(
	backend compat.BackendName, want rules.Ruleset, found compat.Comparison,
) (compat.Result, error) {
	if s.duringRepair != nil {
		s.duringRepair()
	}
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	s.applied++
	s.repairedWith, s.repairedBy = found, backend
	if s.repairErr != nil {
		return s.failedRepair, s.repairErr
	}
	s.rules = want
	if s.afterRepair != nil {
		s.afterRepair()
	}
	return compat.Result{Backend: compat.BackendNFT, Result: nft.Result{Outcome: nft.Created}}, nil
}

// fakeSubscription receives the events that a test sends.
type fakeSubscription struct{ env *testEnv }

func (s fakeSubscription) Add(*netns.NS) error {
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	s.env.added++
	return s.env.subscribeErr
}
func (s fakeSubscription) Close() error { return nil }

func (s fakeSubscription) Next(ctx context.Context) (watch.Event, error) {
	select {
	case event := <-s.env.ruleEvents:
		return event, nil
	case <-ctx.Done():
		return watch.Event{}, ctx.Err()
	}
}

func (env *testEnv) DeletePod(_ context.Context, pod cluster.Name, uid, version string) error {
	return env.recordRequest(fmt.Sprintf("delete %s %s@%s", pod, uid, version))
}

func (env *testEnv) LabelPod(_ context.Context, pod cluster.Name, uid, key, value string) error {
	return env.recordRequest(fmt.Sprintf("label %s %s %s=%s", pod, uid, key, value))
}

func (env *testEnv) recordRequest(description string) error {
	time.Sleep(env.requestTime)
	env.mu.Lock()
	defer env.mu.Unlock()
	env.used += env.requestTime
	env.requests = append(env.requests, description)
	return env.requestErr
}

func (env *testEnv) SendEvent(_ context.Context, e cluster.Event) error {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.events = append(env.events, e)
	return nil
}

// checkLabels fails the test if package metrics does not define the metric, or a value of the
// metric's labels.
func (env *testEnv) checkLabels(name string, labels []string) {
	env.t.Helper()
	m, found := metricstest.Find(name)
	if !found || len(labels) < len(m.Labels) {
		env.t.Errorf("package metrics defines no metric %s with %d labels", name, len(labels))
		return
	}
	for i, l := range m.Labels {
		if len(l.Values) > 0 && !slices.Contains(l.Values, labels[i]) {
			env.t.Errorf("%s: label %s has the undefined value %q", name, l.Name, labels[i])
		}
	}
}

func (env *testEnv) Count(s metrics.CounterSeries, n float64) {
	env.checkLabels(s.Name(), s.Labels())
	env.increase(s.String(), n)
}

func (env *testEnv) increase(series string, n float64) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.counted[series] += n
}

func (env *testEnv) Set(s metrics.GaugeSeries, value float64) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.checkLabels(s.Name(), s.Labels())
	env.counted[s.String()] = value
}

func (env *testEnv) Observe(s metrics.HistogramSeries, _ float64) {
	env.checkLabels(s.Name(), s.Labels())
	env.increase(s.Name()+"_count{"+strings.Join(s.Labels(), ",")+"}", 1)
}

func (env *testEnv) Replace(name string, values []metrics.CounterValue) {
	env.mu.Lock()
	defer env.mu.Unlock()
	maps.DeleteFunc(env.counted, func(series string, _ float64) bool {
		return strings.HasPrefix(series, name+"{")
	})
	for _, v := range values {
		env.checkLabels(v.Name(), v.Labels())
		if _, isDuplicate := env.counted[v.String()]; isDuplicate {
			env.t.Errorf("two values for %s; Prometheus' client library then serves no metrics", v)
		}
		env.counted[v.String()] = v.Value
	}
}
