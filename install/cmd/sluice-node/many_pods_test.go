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

// execProgram mounts the inherited namespaces, and executes the named program, if any, with the
// capabilities that it has in a cluster.
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

// TestManyPods runs the program with its capabilities and as many mesh pods as a node has:
// it should be ready within a second, with all pods audited, in less than 30 MB. The bounds here
// are wider, because other tests run at the same time; the figures are logged.
func TestManyPods(t *testing.T) {
	b := newTestNode(t)
	program := b.path("sluice-node")
	// Without -trimpath the packages are the same as in the test, and are not compiled again.
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v: %s", err, out)
	}
	if err := os.Mkdir(b.path("netns"), 0o700); err != nil {
		t.Fatal(err)
	}
	port := observetest.Port(t)
	b.env = append(b.env, programEnv+"="+program, netnsEnv+"="+b.path("netns"),
		"SLUICE_MOUNTED_NETNS_DIR="+b.path("netns"),
		"SLUICE_AUDIT_INTERVAL=1h", "SLUICE_SEARCH_PROC=false", "MONITORING_PORT="+port)
	namespaces, ruleset := b.addPods()
	begin := time.Now()
	p := b.startIn(namespaces, "run")
	b.waitReady()
	ready := time.Since(begin)
	waitMetric := func(description, line string) {
		t.Helper()
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for end := time.Now().Add(time.Minute); !strings.Contains(b.scrape(port),
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
		t.Errorf("after the repair: %v, %v", found, err)
	}
	t.Logf("ready after %v, all of %d pods audited after %v; resident %d KiB, at most %d KiB",
		ready, podCount, audited, resident, highest)
	if highest > 40<<10 || ready > 25*time.Second {
		t.Error("the program uses too much time or memory")
	}
	b.end(p)
}

// addPods creates pods after their ADD: their namespaces with rules, and their records. It returns
// the namespaces and their ruleset.
func (b *testNode) addPods() ([]*netns.NS, rules.Ruleset) {
	b.t.Helper()
	text, err := os.ReadFile("../../../plugin/decide/testdata/sidecar.yaml")
	if err != nil {
		b.t.Fatal(err)
	}
	pod, err := podfile.Read(bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	store := record.In(b.path("run"))
	var namespaces []*netns.NS
	var ruleset rules.Ruleset
	for i := range podCount {
		name, uid := fmt.Sprintf("orders-%d", i), fmt.Sprintf("7d1e6c2a-%d", i)
		b.Put(strings.NewReplacer("orders-6d5f8c7b9-x2k4n", name, pod.Metadata.UID, uid,
			"nodeName: node-2", "nodeName: "+apiservertest.Node).
			Replace(string(text)))
		ns := netnstest.NewPod(b.t)
		r := redirectOf(b.t, pod)
		ruleset = rules.MustCompile(r)
		if _, err := nftBackend(b.t).Apply(ns, ruleset, compat.Snapshot{}); err != nil {
			b.t.Fatal(err)
		}
		err := store.Put(record.Record{
			Key:     record.Key{ContainerID: fmt.Sprintf("c%d", i), IfName: "eth0"},
			Netns:   fmt.Sprintf("/var/run/netns/%d", i),
			Pod:     record.Pod{Namespace: pod.Metadata.Namespace, Name: name, UID: uid},
			Outcome: "redirect", Reason: "mesh-pod", Redirect: &r, Backend: compat.BackendNFT,
			Time: time.Now(),
		})
		if err != nil {
			b.t.Fatal(err)
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

// startIn starts the program with the namespaces.
func (b *testNode) startIn(namespaces []*netns.NS, args ...string) *process {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(b.t.Context(), self, args...)}
	p.Env, p.Stdout, p.Stderr = b.env, &p.out, &p.out
	for _, ns := range namespaces {
		fd, err := unix.FcntlInt(uintptr(ns.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), ns.String())
		defer file.Close()
		p.ExtraFiles = append(p.ExtraFiles, file)
	}
	p.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// scrape returns the metrics; empty while the port does not answer.
func (b *testNode) scrape(port string) string {
	was := b.url
	defer func() { b.url = was }()
	b.url = "http://127.0.0.1:" + port
	_, text := b.ask("GET", "/metrics", "")
	return text
}

// memory returns the current and the maximum resident memory of a process in KiB.
func memory(t *testing.T, pid int) (now, highest int) {
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
			now = n
		case "VmHWM":
			highest = n
		}
	}
	return now, highest
}
