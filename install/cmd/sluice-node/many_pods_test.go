package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/observe/observetest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// Environment variables of the test binary: the program that it executes after mounting, and the
// directory in which it mounts the inherited namespaces.
const (
	programEnv = "SLUICE_TEST_PROGRAM"
	netnsEnv   = "SLUICE_TEST_NETNS"
)

// firstInherited is the first descriptor of exec.Cmd.ExtraFiles.
const firstInherited = 3

// execProgram returns nil if programEnv is not set. Otherwise it mounts the inherited namespaces,
// and executes the program with the capabilities that it has in a cluster.
func execProgram() error {
	program := os.Getenv(programEnv)
	if program == "" {
		return nil
	}
	dir := os.Getenv(netnsEnv)
	for i := range podCount {
		fd := firstInherited + i
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND,
			""); err != nil {
			return err
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if !slices.Contains(granted, c) {
			// Ignore the error of a capability that the machine does not have.
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	return unix.Exec(program, os.Args, os.Environ())
}

// granted contains the capabilities that the chart grants to an agent that audits and does not
// search /proc.
var granted = []uintptr{
	unix.CAP_DAC_OVERRIDE, unix.CAP_NET_ADMIN, unix.CAP_NET_BROADCAST, unix.CAP_NET_RAW,
	unix.CAP_SYS_ADMIN,
}

// podCount is the number of pods of a large node. The kubelet's default limit is 110.
const podCount = 250

// TestManyPodsNeedLittleTimeAndMemory runs the program with its capabilities and as many mesh pods
// as a large node has. The program should be ready within a second, with all pods audited, in less
// than 30 MB. The bounds here are wider, because other tests run at the same time; the figures are
// logged.
func TestManyPodsNeedLittleTimeAndMemory(t *testing.T) {
	node := newTestNode(t)
	program := node.path("sluice-node")
	// Without -trimpath the packages are the same as in the test, and are not compiled again.
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v: %s", err, out)
	}
	if err := os.Mkdir(node.path("netns"), 0o700); err != nil {
		t.Fatal(err)
	}
	port := observetest.Port(t)
	node.env = append(node.env, programEnv+"="+program, netnsEnv+"="+node.path("netns"),
		"SLUICE_MOUNTED_NETNS_DIR="+node.path("netns"),
		"SLUICE_AUDIT_INTERVAL=1h", "SLUICE_SEARCH_PROC=false", "MONITORING_PORT="+port)
	namespaces, ruleset := node.addPods()
	begin := time.Now()
	p := node.startWith(namespaces, "run")
	node.waitReady()
	ready := time.Since(begin)
	waitMetric := func(description, line string) {
		t.Helper()
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for end := time.Now().Add(time.Minute); !strings.Contains(node.scrape(port),
			line); <-ticker.C {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s\n%s", description, p.out.String())
			}
		}
	}
	waitMetric("all pods are audited", fmt.Sprintf(`sluice_pods{state="redirected"} %d`, podCount))
	audited := time.Since(begin)
	resident, highest := memory(t, p.Process.Pid)
	if _, err := nftBackend(t).Remove(namespaces[7]); err != nil {
		t.Fatal(err)
	}
	waitMetric("one pod is repaired", `sluice_repairs_total{action="repair",cause="drift",result="success"} 1`)
	if found, err := nftBackend(t).Check(namespaces[7], ruleset, compat.Snapshot{}); err != nil ||
		len(found.Differences) > 0 {
		t.Errorf("after the repair: %v, error %v; want no differences", found, err)
	}
	t.Logf("ready after %v, all of %d pods audited after %v; resident %d KiB, at most %d KiB",
		ready, podCount, audited, resident, highest)
	if highest > 40<<10 || ready > 25*time.Second {
		t.Errorf("the agent used up to %d KiB and was ready after %v, want at most 40 MiB and 25 s", highest,
			ready)
	}
	node.end(p)
}

// addPods adds pods whose ADD has completed: it creates their namespaces with rules, and their
// records. It returns the namespaces, and the ruleset of each namespace.
func (node *testNode) addPods() ([]*netns.NS, rules.Ruleset) {
	node.t.Helper()
	text, err := os.ReadFile("../../../plugin/decide/testdata/sidecar.yaml")
	if err != nil {
		node.t.Fatal(err)
	}
	workload, err := podfile.Read(bytes.NewReader(text))
	if err != nil {
		node.t.Fatal(err)
	}
	pod := workload.Pod
	store := record.In(node.path("run"))
	var namespaces []*netns.NS
	var ruleset rules.Ruleset
	for i := range podCount {
		name, uid := fmt.Sprintf("orders-%d", i), fmt.Sprintf("7d1e6c2a-%d", i)
		node.Put(strings.NewReplacer("orders-6d5f8c7b9-x2k4n", name, pod.Metadata.UID, uid,
			"nodeName: node-2", "nodeName: "+apiservertest.Node).
			Replace(string(text)))
		ns := netnstest.NewPod(node.t)
		r := redirectOf(node.t, pod)
		ruleset = rules.MustCompile(r)
		if _, err := nftBackend(node.t).Apply(ns, ruleset, compat.Snapshot{}); err != nil {
			node.t.Fatal(err)
		}
		err := store.Put(record.Record{
			Key:     record.Key{ContainerID: fmt.Sprintf("c%d", i), IfName: "eth0"},
			Netns:   fmt.Sprintf("/var/run/netns/%d", i),
			Pod:     record.Pod{Namespace: pod.Metadata.Namespace, Name: name, UID: uid},
			Outcome: "redirect", Reason: "mesh-pod", Redirect: &r, Backend: compat.BackendNFT,
			Time: time.Now(),
		})
		if err != nil {
			node.t.Fatal(err)
		}
		namespaces = append(namespaces, ns)
	}
	return namespaces, ruleset
}

// redirectOf returns the redirection that ADD configures for a pod.
func redirectOf(t *testing.T, pod *decide.Pod) rules.Redirect {
	t.Helper()
	r, _, err := decide.Parameters(pod, []netip.Addr{netip.MustParseAddr("10.244.1.5")},
		&decide.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func nftBackend(t *testing.T) compat.Backend {
	t.Helper()
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	return backend
}

// startWith starts the program with descriptors of the namespaces.
func (node *testNode) startWith(namespaces []*netns.NS, args ...string) *process {
	node.t.Helper()
	self, err := os.Executable()
	if err != nil {
		node.t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(node.t.Context(), self, args...)}
	p.Env, p.Stdout, p.Stderr = node.env, &p.out, &p.out
	for _, ns := range namespaces {
		fd, err := unix.FcntlInt(uintptr(ns.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			node.t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), ns.String())
		defer file.Close()
		p.ExtraFiles = append(p.ExtraFiles, file)
	}
	p.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		node.t.Fatal(err)
	}
	return p
}

// scrape returns the metrics; empty while the port does not answer.
func (node *testNode) scrape(port string) string {
	healthURL := node.url
	defer func() { node.url = healthURL }()
	node.url = "http://127.0.0.1:" + port
	_, text := node.ask("GET", "/metrics", "")
	return text
}

// memory returns the current and the maximum resident memory of a process in KiB.
func memory(t *testing.T, pid int) (current, highest int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var n int
		name, rest, _ := strings.Cut(string(line), ":")
		if _, err := fmt.Sscan(rest, &n); err != nil && !errors.Is(err, strconv.ErrSyntax) {
			continue
		}
		switch name {
		case "VmRSS":
			current = n
		case "VmHWM":
			highest = n
		}
	}
	return current, highest
}
