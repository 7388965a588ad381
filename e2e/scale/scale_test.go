package scale

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// nodes reads the number of nodes from the environment.
func nodes(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLUICE_SCALE")
	if text == "" {
		return 100
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SLUICE_SCALE=%q: want a number of nodes, 1 or more", text)
	}
	return n
}

// Durations of phases.
const (
	idleTime     = 20 * time.Minute
	outageTime   = 2 * time.Minute
	recoveryTime = 2 * time.Minute
)

// TestMain discards the messages of client-go.
func TestMain(m *testing.M) {
	log, err := logs.New("error", false, io.Discard)
	if err != nil {
		panic(err)
	}
	log.RedirectGlobalLoggers()
	os.Exit(m.Run())
}

// checkPeak fails the test if the busiest second has more than maximum requests or connections.
func checkPeak(t *testing.T, got, maximum int, description string) {
	t.Helper()
	if got > maximum {
		t.Errorf("%s: %d in the busiest second, want at most %d", description, got, maximum)
	}
}

// checkRequests checks that the agents start with the same kinds of requests as sluice-node. A test
// of sluice-node contains the same list.
func checkRequests(t *testing.T, start report.Phase) {
	t.Helper()
	got := slices.Sorted(maps.Keys(start.Requests))
	want := []string{
		"create serviceaccounts/token", "get pods", "list daemonsets", "watch daemonsets", "watch pods",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("requests at the start (-want +got)\n%s", d)
	}
}

// TestScale measures the requests of all agents in each phase, and checks that they are spread over
// time.
func TestScale(t *testing.T) {
	n := nodes(t)
	result := report.Scale{Machine: bench.Machine(), Nodes: n, Pods: podsPerNode}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, n)
		measure := func(name, description string, do func()) report.Phase {
			p := f.begin(name, description)
			do()
			measured := p.end()
			result.Phases = append(result.Phases, measured)
			t.Logf("%-12s %6.0f s: %7d requests, %6d in the busiest second; %6d connections, %6d in the "+
				"busiest second; %d B received, %d B sent; %v",
				name, measured.Seconds, measured.Total(), measured.Peak(), measured.Connections,
				measured.PeakConnections, measured.Received, measured.Sent, measured.Requests)
			return measured
		}
		start := measure("start", "all agents start at the same instant", func() {
			f.startAll()
			time.Sleep(time.Minute)
		})
		idlePhase := measure("rest", "20 minutes without changes", func() { time.Sleep(idleTime) })
		measure("upgrade", "all agents are replaced, a tenth at a time", f.upgrade)
		time.Sleep(time.Minute)
		outage := measure("outage", "connections to the API server are closed for two minutes", func() {
			f.server.Fault(apiservertest.Reset())
			time.Sleep(outageTime)
		})
		recovery := measure("recovery", "the API server is available again", func() {
			f.server.Recover()
			time.Sleep(recoveryTime)
		})
		f.stopAll()
		f.server.Stop()
		checkPeak(t, idlePhase.Peak(), n/20+10, "requests of agents that started together")
		checkPeak(t, outage.PeakConnections, 5*n/2, "attempts to connect in an outage")
		checkPeak(t, recovery.Peak(), 3*n/5+10, "requests after an outage")
		checkRequests(t, start)
	})
	if os.Getenv("SLUICE_SCALE_WRITE") == "1" && !t.Failed() {
		dir := filepath.Join("..", "bench")
		results, err := report.Read(dir)
		must(t, err)
		results.Scale = &result
		must(t, report.Write(dir, results))
	}
}
