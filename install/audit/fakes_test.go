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

// errNowhere is the reason why a sandbox is not found.
var errNowhere = errors.New("nowhere")

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

func (w *testEnv) Pod(_ context.Context, ref source.Ref) (text []byte, fetched bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := w.objects[ref.Namespace+"/"+ref.Name]; text != nil {
		return text, false, nil
	}
	return nil, false, source.WithKind(source.NotFound, errors.New("not found"))
}

func (w *testEnv) Namespace(context.Context, string) (text []byte, fetched bool, err error) {
	return []byte(`{"metadata":{"name":"shop","labels":{"mesh":"yes"}}}`), false, nil
}

func (w *testEnv) find(
	_ context.Context, pods []sandbox.Pod,
) (map[string]sandbox.Sandbox, []sandbox.Missing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.searches++
	found := map[string]sandbox.Sandbox{}
	var missing []sandbox.Missing
	for _, p := range pods {
		if path, ok := w.byNetNS[p.UID]; ok && w.spaces[path] != nil {
			found[p.UID] = sandbox.Sandbox{
				Pod: p, Path: path, ID: w.spaces[path].id, Source: w.source, Created: w.created,
			}
		} else {
			missing = append(missing, sandbox.Missing{Pod: p, Err: errNowhere})
		}
	}
	return found, missing
}

func (w *testEnv) open(s sandbox.Sandbox) (audit.Namespace, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.spaces[s.Path]
	if found == nil {
		return nil, fs.ErrNotExist
	}
	found.open++
	return found, nil
}

func (s *space) NS() *netns.NS { return nil }

func (s *space) Close() error { s.w.mu.Lock(); defer s.w.mu.Unlock(); s.open--; return nil }

func (s *space) Addresses() ([]netip.Addr, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.addresses, nil
}

func (s *space) HasNoRules() (bool, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.searched++
	return len(s.has.Tables) == 0, nil
}

func (s *space) Foreign(_ rules.Ruleset, last *foreign.Snapshot, _ diff.Budget) foreign.Snapshot {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if last != nil && !last.Exhausted {
		return *last
	}
	s.inspected++
	return foreign.Snapshot{Effect: s.foreign}
}

func (s *space) EndConnections(rules.Ruleset, established.Options) (established.Report, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.ended++
	return s.bypassing, nil
}

func (s *space) Istio() ([]string, error) { return s.istio, nil }

func (s *space) Check(e compat.BackendName, want rules.Ruleset) (compat.Comparison, error) {
	time.Sleep(s.slow)
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.checked++
	s.w.used += s.slow
	if s.unreadable != nil {
		return compat.Comparison{}, s.unreadable
	}
	if e == compat.BackendAuto {
		e = compat.BackendNFT
	}
	got := s.has
	if s.stranger != "" {
		got.Routing.Others = []string{s.stranger}
	}
	c := compat.Comparison{
		Backend: e, Differences: rules.Compare(want, got), HasRules: len(got.Tables) > 0,
	}
	if len(c.Differences) == 0 && want.Counters() {
		c.Packets = rules.PacketsByRule(want, got)
	}
	return c, nil
}

func (s *space) CheckSince(last compat.Comparison, want rules.Ruleset) (compat.Comparison, error) {
	s.w.mu.Lock()
	s.rechecked++
	s.w.mu.Unlock()
	return s.Check(last.Backend, want)
}

func (s *space) Repair(
	_ compat.BackendName, want rules.Ruleset, found compat.Comparison,
) (compat.Result, error) {
	if s.during != nil {
		s.during()
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.applied++
	s.mended = found
	if s.refuse != nil {
		return compat.Result{}, s.refuse
	}
	s.has = want
	return compat.Result{Backend: compat.BackendNFT, Result: nft.Result{Outcome: nft.Created}}, nil
}

// ears receive the events that the test sends.
type ears struct{ w *testEnv }

func (e ears) Add(*netns.NS) error { e.w.mu.Lock(); defer e.w.mu.Unlock(); e.w.added++; return nil }
func (e ears) Close() error        { return nil }

func (e ears) Next(ctx context.Context) (watch.Event, error) {
	select {
	case event := <-e.w.heard:
		return event, nil
	case <-ctx.Done():
		return watch.Event{}, ctx.Err()
	}
}

func (w *testEnv) DeletePod(_ context.Context, pod cluster.Name, uid, version string) error {
	return w.act(fmt.Sprintf("delete %s %s@%s", pod, uid, version))
}

func (w *testEnv) LabelPod(_ context.Context, pod cluster.Name, uid, key, value string) error {
	return w.act(fmt.Sprintf("label %s %s %s=%s", pod, uid, key, value))
}

func (w *testEnv) act(description string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acts = append(w.acts, description)
	return w.refuse
}

func (w *testEnv) SendEvent(_ context.Context, e cluster.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	return nil
}

// known fails the test for a value of a label that the table does not have.
func (w *testEnv) known(name string, labels []string) {
	m, _ := metricstest.Find(name)
	for i, l := range m.Labels {
		if len(l.Values) > 0 && !slices.Contains(l.Values, labels[i]) {
			w.t.Errorf("%s: label %s is never %q", name, l.Name, labels[i])
		}
	}
}

func (w *testEnv) Count(s metrics.CounterSeries, n float64) {
	w.known(s.Name(), s.Labels())
	w.add(s.String(), n)
}

func (w *testEnv) add(series string, n float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counted[series] += n
}

func (w *testEnv) Set(s metrics.GaugeSeries, value float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known(s.Name(), s.Labels())
	w.counted[s.String()] = value
}

func (w *testEnv) Observe(s metrics.HistogramSeries, _ float64) {
	w.known(s.Name(), s.Labels())
	w.add(s.Name()+"_count{"+strings.Join(s.Labels(), ",")+"}", 1)
}

func (w *testEnv) Replace(name string, values []metrics.CounterValue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.counted, func(series string, _ float64) bool {
		return strings.HasPrefix(series, name+"{")
	})
	for _, v := range values {
		w.known(v.Name(), v.Labels())
		w.counted[v.String()] = v.Value
	}
}
