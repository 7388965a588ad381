package zds_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// A step is what happens to an agent, and what follows. ours is what our server does if it differs
// by design, and why is the reason.
type step struct {
	do    func(w *world) error
	name  string
	istio []string
	ours  []string
	why   string
}

const (
	addsToAll = "our server tells each ztunnel of a new pod, istio-cni the newest one"
	addsOnce  = "our server sends a pod again only if it has changed or was not acknowledged"
)

// A world is an agent with its ztunnels.
type world struct {
	t     *testing.T
	agent agent
	pods  map[string]pod
	a     *ztunnel

	mu    sync.Mutex
	lines []string
}

func (w *world) record(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

// take returns the lines since the last call, once there are at least n. The lines of one ztunnel
// are in order; so are the pods of a snapshot, whose order istio-cni does not define.
func (w *world) take(n int) []string {
	rulestest.EventuallySucceeds(w.t, "the messages", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.lines) < n {
			return fmt.Errorf("%d of %d: %q", len(w.lines), n, w.lines)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	if end := slices.IndexFunc(lines, func(l string) bool { return strings.HasSuffix(l, "snapshot sent") }); end > 0 {
		slices.Sort(lines[:end])
	}
	return lines
}

func (w *world) add(name string) error { return w.agent.add(w.pods[name]) }

// ztunnel connects a ztunnel that refuses the pod with the UID.
func (w *world) ztunnel(name, refuse string) *ztunnel {
	z := &ztunnel{
		name: name, refuse: refuse, record: w.record, inodes: map[uint64]string{},
	}
	for name, p := range w.pods {
		if p.ns != nil {
			z.inodes[p.ns.ID().Ino] = name
		}
	}
	connect(w.t, z, w.agent.socket())
	return z
}

func added(ztunnel string, p pod) string {
	return fmt.Sprintf("%s add %s app/%s sa-%s, namespace of %s", ztunnel, p.uid(), p.name, p.name,
		p.name)
}

// installer returns the path of the real istio-cni.
func installer(t *testing.T) string {
	t.Helper()
	netnstest.RequireRoot(t)
	netnstest.RequireBinary(t, "nft")
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", "e2e", "install-cni"))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Fatalf("%v: \"make test-peers\" builds it", err)
	}
	return program
}

// The real istio-cni and our server send the same messages in the same order, with the same fields
// and the network namespaces of the pods, but for the named differences.
func TestTranscripts(t *testing.T) {
	program := installer(t)
	kept := pod{name: "kept"}
	var pods []pod
	byName := map[string]pod{"kept": kept}
	for _, name := range []string{"p1", "p2", "p3", "p4"} {
		p := pod{name, netnstest.New(t)}
		pods = append(pods, p)
		byName[name] = p
	}
	p1, p2, p3, p4 := pods[0], pods[1], pods[2], pods[3]
	steps := []step{
		{
			name: "ADD without a ztunnel",
			do: func(w *world) error {
				err := w.add("p1")
				if err == nil {
					return fmt.Errorf("p1 was added")
				}
				return nil
			},
		},
		{
			name: "a ztunnel connects",
			do:   func(w *world) error { w.a = w.ztunnel("A", ""); return nil },
			istio: []string{
				added("A", p1), "A keep " + kept.uid(), "A snapshot sent",
			},
		},
		{
			name: "ADD", do: func(w *world) error { return w.add("p2") },
			istio: []string{added("A", p2)},
		},
		{
			name: "ADD of the same pod", do: func(w *world) error { return w.add("p2") },
			istio: []string{added("A", p2)}, ours: []string{}, why: addsOnce,
		},
		{
			name: "a second ztunnel connects",
			do:   func(w *world) error { w.ztunnel("B", p4.uid()); return nil },
			istio: []string{
				added("B", p1), added("B", p2), "B keep " + kept.uid(), "B snapshot sent",
			},
		},
		{
			name: "ADD with two ztunnels", do: func(w *world) error { return w.add("p3") },
			istio: []string{added("B", p3)}, ours: []string{added("A", p3), added("B", p3)},
			why: addsToAll,
		},
		{
			name:  "a pod is deleted",
			do:    func(w *world) error { return w.agent.remove(p1) },
			istio: []string{"A del " + p1.uid(), "B del " + p1.uid()},
		},
		{
			name:  "a pod whose network namespace is unknown is deleted",
			do:    func(w *world) error { return w.agent.remove(kept) },
			istio: []string{"A del " + kept.uid(), "B del " + kept.uid()},
		},
		{
			name: "the older ztunnel ends, and the other refuses a pod",
			do: func(w *world) error {
				w.a.close()
				if err := w.add("p4"); err == nil || !strings.Contains(err.Error(), "cannot listen") {
					w.t.Errorf("the refusal is reported as %v", err)
				}
				return nil
			},
			istio: []string{added("B", p4)},
		},
	}
	for name, start := range map[string]func(t *testing.T) agent{
		"istio-cni": func(t *testing.T) agent { return startIstio(t, program, kept, pods) },
		"ours":      func(t *testing.T) agent { return startOurs(t, kept) },
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, pods: byName, agent: start(t)}
			for _, s := range steps {
				want := s.istio
				if name == "ours" && s.why != "" {
					want = s.ours
				}
				if err := s.do(w); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if got := w.take(len(want)); !slices.Equal(got, want) {
					t.Errorf("%s:\n%s", s.name, cmp.Diff(want, got))
				}
			}
			if rest := w.take(0); len(rest) > 0 {
				t.Errorf("more messages: %q", rest)
			}
		})
	}
	for _, s := range steps {
		if (s.why == "") != (s.ours == nil) {
			t.Errorf("%s: a difference has a reason", s.name)
		}
	}
}
