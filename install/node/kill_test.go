package node_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/node"
)

// jobEnv is the environment variable with the job of a process that a test kills.
const jobEnv = "SLUICE_NODE_JOB"

// runKilledJob does one job in the process that is killed. It prints a line when it begins.
func runKilledJob(job string) {
	description, dir, _ := strings.Cut(job, " ")
	tn := testNodeIn(processTB{}, dir)
	scenario(description).applyTo(&tn.settings)
	if strings.HasPrefix(description, "upgrade") {
		tn.settings = tn.upgraded()
	}
	n := tn.node()
	fmt.Println("begin")
	if strings.HasPrefix(description, "uninstall") {
		_, err := n.Uninstall(context.Background(), 0)
		tn.must(err)
		return
	}
	tn.mustBeInstalled(n.Reconcile(context.Background()))
}

// processTB is the testing.TB of a process without a test.
type processTB struct{ testing.TB }

func (processTB) Helper()                           {}
func (processTB) Fatal(args ...any)                 { fmt.Println(args...); os.Exit(1) }
func (processTB) Fatalf(format string, args ...any) { fmt.Printf(format, args...); os.Exit(1) }

// A scenario names an initial state of a node and a way to install the plugin.
type scenario string

const (
	inList    scenario = "list"
	inPlain   scenario = "plain"
	asOwned   scenario = "owned"
	takeOver  scenario = "takeover"
	forMultus scenario = "multus"
)

// is reports whether sc has the name, or describes a job in the named scenario, such as
// "install-owned".
func (sc scenario) is(name scenario) bool { return strings.HasSuffix(string(sc), string(name)) }

func (sc scenario) applyTo(s *node.Settings) {
	s.IstioOwnedCNIConfig = sc.is(asOwned)
	s.Chained = !sc.is(forMultus)
}

func (sc scenario) files() map[string]string {
	switch {
	case sc.is(inPlain):
		return map[string]string{"conf/10-a.conf": plainBridge, "conf/20-b.conflist": list("other")}
	case sc.is(takeOver):
		return map[string]string{"conf/10-a.conflist": list("bridge", "istio-cni", "portmap")}
	}
	return map[string]string{"conf/10-a.conflist": list("bridge", "portmap")}
}

func TestAKillAtAnyMomentLeavesAConsistentNode(t *testing.T) {
	rounds := 25
	if os.Getenv("SLUICE_LONG") == "1" {
		rounds = 500
	}
	scenarios := []scenario{inList, inPlain, asOwned, takeOver, forMultus}
	longest := map[string]time.Duration{}
	killed := 0
	for round := range rounds {
		sc := scenarios[round%len(scenarios)]
		tn := newTestNode(t)
		tn.putExecutable("istio-cni", "istio's plugin")
		tn.putAll(sc.files())
		sc.applyTo(&tn.settings)
		before := tn.filesToRestore()
		for range 1 + rand.IntN(3) {
			job := []string{"install", "upgrade", "uninstall"}[rand.IntN(3)]
			if killWhile(t, tn, job+"-"+string(sc), longest) {
				killed++
			}
			wantPodsCanStart(tn, sc)
		}
		if s := []node.Settings{tn.settings, tn.upgraded()}[rand.IntN(2)]; rand.IntN(4) > 0 {
			status := tn.nodeOf(s).Reconcile(t.Context())
			tn.mustBeInstalled(status)
			if want := map[bool]string{
				true: pluginV1, false: pluginV2,
			}[s.Binaries["sluice-cni"] == tn.path("image", "v1")]; tn.read("bin/sluice-cni") != want {
				t.Error("a reconciliation after the kill did not install the executable")
			}
			if second := tn.nodeOf(s).Reconcile(t.Context()); len(second.Changes) > 0 {
				t.Errorf("a reconciliation after the kill did not reach the desired state: the next one changed %v",
					second.Changes)
			}
			for name := range tn.filesToRestore() {
				if strings.HasSuffix(name, ".tmp") {
					t.Errorf("the temporary file %s remains", name)
				}
			}
		}
		tn.uninstall()
		tn.wantRestored(before)
		if t.Failed() {
			t.Fatalf("round %d: %s", round, sc)
		}
	}
	t.Logf("%d processes were killed while working; the others had finished", killed)
	if killed < rounds/10 {
		t.Errorf("in %d rounds only %d processes were killed while working, want at least %d", rounds,
			killed, rounds/10)
	}
}

// TestAKillBeforeEachChangeLeavesAConsistentNode kills the process before each system call that
// changes a file, or before every seventh unless SLUICE_LONG is set.
func TestAKillBeforeEachChangeLeavesAConsistentNode(t *testing.T) {
	scenarios, step := []scenario{takeOver, inPlain}, 7
	if os.Getenv("SLUICE_LONG") == "1" {
		scenarios, step = []scenario{inList, inPlain, asOwned, takeOver, forMultus}, 1
	}
	kills := 0
	for _, sc := range scenarios {
		for _, job := range []string{"install", "upgrade", "uninstall"} {
			nth := 1 + rand.IntN(step)
			for again := true; again; nth += step {
				tn := newTestNode(t)
				tn.putExecutable("istio-cni", "istio's plugin")
				tn.putAll(sc.files())
				sc.applyTo(&tn.settings)
				before := tn.filesToRestore()
				if job != "install" {
					tn.mustBeInstalled(tn.reconcile())
				}
				if again = killBefore(t, tn, job+"-"+string(sc), nth); again {
					kills++
				}
				wantPodsCanStart(tn, sc)
				if rand.IntN(2) == 0 {
					tn.mustBeInstalled(tn.reconcile())
				}
				tn.uninstall()
				tn.wantRestored(before)
				if t.Failed() {
					t.Fatalf("%s of %s, killed before change %d", job, sc, nth)
				}
			}
			if nth < 10 {
				t.Errorf("%s of %s: the job made fewer than %d changes, want at least 10", job, sc, nth)
			}
		}
	}
	t.Logf("%d kills", kills)
}

// killWhile starts a process, kills it at a random moment and reports whether it was still working.
// longest contains the longest known duration of each job, which limits the random time. killWhile
// updates it.
func killWhile(t *testing.T, tn *testNode, job string, longest map[string]time.Duration) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+job+" "+tn.dir, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(out)
	if line, err := reader.ReadString('\n'); err != nil || line != "begin\n" {
		t.Fatalf("%s: the process printed %q, %v; want begin", job, line, err)
	}
	start := time.Now()
	limit := longest[job]
	if limit == 0 {
		limit = 10 * time.Millisecond
	}
	moment := time.NewTimer(rand.N(limit))
	defer moment.Stop()
	ended := make(chan string, 1)
	go func() {
		rest, _ := reader.ReadString(0)
		ended <- rest
	}()
	select {
	case <-moment.C:
		_ = cmd.Process.Kill()
		<-ended
	case rest := <-ended:
		longest[job] = time.Since(start)
		if rest != "" {
			t.Errorf("%s: the process printed %q, want nothing after begin", job, rest)
		}
	}
	_ = cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() && status.ExitStatus() != 0 {
		t.Errorf("%s: the process ended with %v, want success or the kill", job, cmd.ProcessState)
	}
	if status.Signaled() {
		longest[job] = max(longest[job], time.Since(start)+time.Millisecond)
	}
	return status.Signaled()
}

// wantPodsCanStart fails the test unless pods could start at this moment: there is a valid network
// with all foreign plugins, and no configuration contains a plugin whose executable is incomplete.
func wantPodsCanStart(tn *testNode, sc scenario) {
	tn.t.Helper()
	entries, err := os.ReadDir(tn.path("conf"))
	tn.must(err)
	var files []chain.File
	for _, e := range entries {
		data, err := os.ReadFile(tn.path("conf", e.Name()))
		tn.must(err)
		files = append(files, chain.File{Name: e.Name(), Data: data})
	}
	choice, skipped, err := chain.Discover(files, "")
	if err != nil || len(skipped) > 0 {
		tn.t.Errorf("no pod could start: error %v, skipped files %v, chains %v", err, skipped, tn.chains())
		return
	}
	types := strings.Join(choice.List.Types(), " ")
	if !strings.HasPrefix(types, "bridge") ||
		sc.is(takeOver) && !strings.Contains(types, "istio-cni") &&
			!strings.Contains(types, "sluice-cni") {
		tn.t.Errorf("the chain in use is %s, which lacks a plugin", types)
	}
	for name, plugins := range tn.chains() {
		if !strings.Contains(plugins, "sluice-cni") {
			continue
		}
		if got := tn.read("bin/sluice-cni"); got != pluginV1 && got != pluginV2 {
			tn.t.Errorf("%s names the plugin, whose executable has %d bytes", name, len(got))
		}
	}
}
