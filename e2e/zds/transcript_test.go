package zds_test

import (
	"errors"
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

// A testStep is an action, do, and the messages that the ztunnels must receive after the action.
// istio contains the messages of istio-cni. If Sluice sends other messages by design, sluice
// contains them, and reason says why.
type testStep struct {
	do     func(env *testEnv) error
	name   string
	istio  []string
	sluice []string
	reason string
}

const (
	addsToAll = "Sluice sends a new pod to each ztunnel, istio-cni only to the newest one"
	addsOnce  = "Sluice sends a pod again only if it has changed or was not acknowledged"
)

// A testEnv is an agent with its ztunnels.
type testEnv struct {
	t     *testing.T
	agent agent
	pods  map[string]pod
	a     *ztunnel

	mu    sync.Mutex
	lines []string
}

func (env *testEnv) record(line string) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.lines = append(env.lines, line)
}

// take waits for at least n lines, and returns the lines since the last call. It sorts the lines by
// ztunnel, and also sorts the pods of a snapshot, because istio-cni sends them in any order.
func (env *testEnv) take(n int) []string {
	rulestest.EventuallySucceeds(env.t, "the ztunnels receive the messages", func() error {
		env.mu.Lock()
		defer env.mu.Unlock()
		if len(env.lines) < n {
			return fmt.Errorf("%d of %d messages: %q", len(env.lines), n, env.lines)
		}
		return nil
	})
	env.mu.Lock()
	defer env.mu.Unlock()
	lines := env.lines
	env.lines = nil
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	if end := slices.IndexFunc(lines, func(l string) bool { return strings.HasSuffix(l, "snapshot sent") }); end > 0 {
		slices.Sort(lines[:end])
	}
	return lines
}

func (env *testEnv) add(name string) error { return env.agent.add(env.pods[name]) }

// ztunnel connects a ztunnel that rejects the pod with the UID refuse.
func (env *testEnv) ztunnel(name, refuse string) *ztunnel {
	z := &ztunnel{
		name: name, refuse: refuse, record: env.record, inodes: map[uint64]string{},
	}
	for name, p := range env.pods {
		if p.ns != nil {
			z.inodes[p.ns.ID().Ino] = name
		}
	}
	connect(env.t, z, env.agent.socket())
	return z
}

// added returns the line of a message that adds a pod.
func added(ztunnel string, p pod) string {
	return fmt.Sprintf("%s add %s app/%s sa-%s, namespace of %s", ztunnel, p.uid(), p.name, p.name,
		p.name)
}

// installCNI returns the path of Istio's install-cni.
func installCNI(t testing.TB) string {
	t.Helper()
	netnstest.RequireRoot(t)
	netnstest.RequireBinary(t, "nft")
	return builtProgram(t, "e2e/install-cni")
}

// builtProgram returns the path of a program in bin.
func builtProgram(t testing.TB, name string) string {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Fatalf("%v: run \"make test-peers\"", err)
	}
	return program
}

// istio-cni and Sluice send the same messages in the same order, with the same fields and network
// namespaces, except for the differences in the steps.
func TestTranscripts(t *testing.T) {
	program := installCNI(t)
	orphan := pod{name: "kept"}
	var pods []pod
	byName := map[string]pod{"kept": orphan}
	for _, name := range []string{"p1", "p2", "p3", "p4"} {
		p := pod{name, netnstest.New(t)}
		pods = append(pods, p)
		byName[name] = p
	}
	p1, p2, p3, p4 := pods[0], pods[1], pods[2], pods[3]
	steps := []testStep{
		{
			name: "ADD without a ztunnel",
			do: func(env *testEnv) error {
				err := env.add("p1")
				if err == nil {
					return errors.New("ADD succeeded, want an error")
				}
				return nil
			},
		},
		{
			name: "a ztunnel connects",
			do:   func(env *testEnv) error { env.a = env.ztunnel("A", ""); return nil },
			istio: []string{
				added("A", p1), "A keep " + orphan.uid(), "A snapshot sent",
			},
		},
		{
			name: "ADD", do: func(env *testEnv) error { return env.add("p2") },
			istio: []string{added("A", p2)},
		},
		{
			name: "ADD of the same pod", do: func(env *testEnv) error { return env.add("p2") },
			istio: []string{added("A", p2)}, sluice: []string{}, reason: addsOnce,
		},
		{
			name: "a second ztunnel connects",
			do:   func(env *testEnv) error { env.ztunnel("B", p4.uid()); return nil },
			istio: []string{
				added("B", p1), added("B", p2), "B keep " + orphan.uid(), "B snapshot sent",
			},
		},
		{
			name: "ADD with two ztunnels", do: func(env *testEnv) error { return env.add("p3") },
			istio: []string{added("B", p3)}, sluice: []string{added("A", p3), added("B", p3)},
			reason: addsToAll,
		},
		{
			name:  "a pod is deleted",
			do:    func(env *testEnv) error { return env.agent.remove(p1) },
			istio: []string{"A del " + p1.uid(), "B del " + p1.uid()},
		},
		{
			name:  "a pod whose network namespace is unknown is deleted",
			do:    func(env *testEnv) error { return env.agent.remove(orphan) },
			istio: []string{"A del " + orphan.uid(), "B del " + orphan.uid()},
		},
		{
			name: "the first ztunnel disconnects, and the second rejects a pod",
			do: func(env *testEnv) error {
				env.a.close()
				if err := env.add("p4"); err == nil || !strings.Contains(err.Error(), "cannot listen") {
					env.t.Errorf("ADD of a rejected pod: error %v, want %q in it", err, "cannot listen")
				}
				return nil
			},
			istio: []string{added("B", p4)},
		},
	}
	for name, start := range map[string]func(t *testing.T) agent{
		"istio-cni": func(t *testing.T) agent { return startIstio(t, program, orphan, pods) },
		"sluice":    func(t *testing.T) agent { return startSluice(t, orphan) },
	} {
		t.Run(name, func(t *testing.T) {
			env := &testEnv{t: t, pods: byName, agent: start(t)}
			for _, s := range steps {
				want := s.istio
				if name == "sluice" && s.reason != "" {
					want = s.sluice
				}
				if err := s.do(env); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if got := env.take(len(want)); !slices.Equal(got, want) {
					t.Errorf("%s: messages (-want +got)\n%s", s.name, cmp.Diff(want, got))
				}
			}
			if rest := env.take(0); len(rest) > 0 {
				t.Errorf("messages after the last step: %q, want none", rest)
			}
		})
	}
	for _, s := range steps {
		if (s.reason == "") != (s.sluice == nil) {
			t.Errorf("%s: sluice and reason must be set together", s.name)
		}
	}
}
