package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// sampleCount is the number of samples in a run. repairCount is the number of times that rules are
// deleted.
const sampleCount, repairCount = 120, 200

// A plan contains the parameters of a run.
type plan struct {
	duration        time.Duration
	sandboxes, live int
	write           bool
}

// newPlan returns the plan in the environment variables.
func newPlan(t *testing.T) plan {
	t.Helper()
	p := plan{duration: 20 * time.Second, live: 40, write: os.Getenv("SLUICE_SOAK_WRITE") == "1"}
	if text := os.Getenv("SLUICE_SOAK"); text != "" {
		var err error
		if p.duration, err = time.ParseDuration(text); err != nil || p.duration < 10*time.Second {
			t.Fatalf("SLUICE_SOAK=%q: want a duration of at least 10s", text)
		}
	}
	if p.duration >= time.Minute {
		p.live = 250
	}
	p.sandboxes = max(200, int(5000*p.duration/time.Hour))
	for name, to := range map[string]*int{
		"SLUICE_SOAK_SANDBOXES": &p.sandboxes, "SLUICE_SOAK_LIVE": &p.live,
	} {
		if text := os.Getenv(name); text != "" {
			var err error
			// While a sandbox is replaced, another one must exist for connections.
			if *to, err = strconv.Atoi(text); err != nil || *to < 2 {
				t.Fatalf("%s=%q: want an integer, 2 or more", name, text)
			}
		}
	}
	return p
}

// A run contains the existing sandboxes and the counters.
type run struct {
	*node
	plan
	pod string // a pod, with NAME and UID as placeholders

	mu            sync.Mutex
	liveSandboxes []*sandbox
	connections   int
	repairs       []float64 // in seconds
}

// TestSoak creates and removes sandboxes. It checks that all connections of live sandboxes are
// captured, that deleted rules are restored, that the agent's resource usage does not grow, and
// that no files or descriptors of sandboxes are left.
func TestSoak(t *testing.T) {
	netnstest.RequireRoot(t)
	r := &run{plan: newPlan(t), pod: meshPod(t)}
	r.node = newNode(t, thisVersion, thisVersion)
	before, err := r.writtenFiles()
	must(t, err)
	for i := range min(r.live, r.sandboxes) {
		must(t, r.create(i))
	}
	t.Logf("%s: %d sandboxes, %d at a time", r.duration, r.sandboxes, r.live)

	quantities := r.quantities()
	ctx, cancel := context.WithTimeout(t.Context(), r.duration)
	defer cancel()
	begin := time.Now()
	var group sync.WaitGroup
	repeat := func(times int, description string, do func(i int) error) {
		group.Go(func() {
			if err := callEvenly(ctx, times, r.duration, do); err != nil {
				t.Errorf("%s: %v", description, err)
				cancel()
			}
		})
	}
	repeat(r.sandboxes-r.live, "sandboxes", func(i int) error { return r.replace(r.live + i) })
	repeat(10*r.sandboxes, "traffic", func(int) error { return r.connect() })
	repeat(repairCount, "repairs", func(int) error { return r.repair() })
	repeat(sampleCount, "samples", func(i int) error {
		if i%(sampleCount/6) == 0 {
			t.Logf("%5.0f s: %d connections, %d repairs", time.Since(begin).Seconds(),
				r.connectionCount(), len(r.repairTimes()))
		}
		for j := range quantities {
			if err := quantities[j].sample(begin); err != nil {
				return err
			}
		}
		return nil
	})
	group.Wait()
	if t.Failed() {
		return
	}

	result := report.Soak{
		Machine: bench.Machine(), Duration: r.duration, Sandboxes: r.sandboxes, Live: r.live,
		Connections: r.connectionCount(),
		Repairs:     report.Summarize(r.repairTimes()), LongestRepair: slices.Max(r.repairTimes()),
	}
	for _, q := range quantities {
		second, last := q.Quarters()
		t.Logf("%-34s %8.1f %8.1f %s", q.Name, second, last, q.Unit)
		if r.duration < time.Minute {
			q.Growth *= 4 // the agent's resources still grow after its start
		}
		if !q.IsFlat() {
			t.Errorf("%s: %.1f in the second quarter, %.1f in the last, want a growth of at most %.1f",
				q.Name, second, last, q.Growth)
		}
		result.Series = append(result.Series, q.Series)
	}
	t.Logf("%d connections, all captured; %d repairs, %.0f ms in the median, %.0f ms at most",
		result.Connections, result.Repairs.Samples, 1e3*result.Repairs.Median,
		1e3*result.LongestRepair)
	for len(r.liveSandboxes) > 0 {
		must(t, r.remove(r.take()))
	}
	rulestest.EventuallySucceeds(t, "all files and descriptors of sandboxes are removed", func() error {
		files, err := r.writtenFiles()
		if err != nil {
			return err
		}
		open, err := r.namespaces()
		// The only new file is the plugin's log.
		if err == nil && (len(files) > len(before)+1 || open > 1) {
			err = fmt.Errorf("%d open namespaces, want at most 1; files %v, want %v and one log",
				int(open), files, before)
		}
		return err
	})
	if r.write {
		writeSoak(t, result)
	}
}

// meshPod returns a pod with NAME and UID as placeholders.
func meshPod(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "plugin", "decide", "testdata",
		"sidecar.yaml"))
	must(t, err)
	return strings.NewReplacer(
		"name: orders-6d5f8c7b9-x2k4n", "name: NAME", "7d1e6c2a-4b0f-4a57-9f63-3b5d0a0005d9", "UID",
		"nodeName: node-2", "nodeName: "+apiservertest.Node,
	).Replace(string(text))
}

// writeSoak writes the result to the benchmark results.
func writeSoak(t *testing.T, s report.Soak) {
	dir := filepath.Join("..", "bench")
	results, err := report.Read(dir)
	must(t, err)
	results.Soak = &s
	must(t, report.Write(dir, results))
}

// callEvenly calls do the given number of times, evenly distributed over a duration. It stops when
// ctx is done.
func callEvenly(ctx context.Context, times int, over time.Duration, do func(i int) error) error {
	begin := time.Now()
	for i := range times {
		wait := time.Until(begin.Add(over * time.Duration(i) / time.Duration(times)))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// create creates a sandbox, and checks that a connection is captured.
func (r *run) create(number int) error {
	s, err := r.newSandbox(number, r.pod)
	if err != nil {
		return err
	}
	if _, err := s.connectCaptured(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.liveSandboxes = append(r.liveSandboxes, s)
	return nil
}

// replace removes a sandbox and creates another one.
func (r *run) replace(number int) error {
	if err := r.remove(r.take()); err != nil {
		return err
	}
	return r.create(number)
}

// take removes a random sandbox from the live ones, and returns it.
func (r *run) take() *sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := rand.IntN(len(r.liveSandboxes))
	s := r.liveSandboxes[i]
	r.liveSandboxes = slices.Delete(r.liveSandboxes, i, i+1)
	return s
}

// random returns a random live sandbox.
func (r *run) random() *sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.liveSandboxes[rand.IntN(len(r.liveSandboxes))]
}

// connect checks that a connection of a random sandbox is captured.
func (r *run) connect() error {
	attempted, err := r.random().connectCaptured()
	if attempted {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.connections++
	}
	return err
}

// repair deletes the rules of a random sandbox, and records the time until they are restored.
func (r *run) repair() error {
	elapsed, done, err := r.random().measureRepair()
	if done {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.repairs = append(r.repairs, elapsed.Seconds())
	}
	return err
}

// connectionCount returns the number of captured connections.
func (r *run) connectionCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connections
}

func (r *run) repairTimes() []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.repairs)
}
