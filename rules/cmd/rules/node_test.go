package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
)

// ambientNode applies the node's rules for a pod in ambient mode to ns, and starts an agent that
// reports these rules.
func ambientNode(t *testing.T, ns *netns.NS, backend compat.BackendName) (runDir string) {
	t.Helper()
	h := rules.DefaultAmbientHost()
	h.Pods = []netip.Addr{netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("fd00:10:244:1::5")}
	if backend == compat.BackendNFT { // iptables-legacy requires that the cgroup exists
		h.Kubelet = rules.CgroupOf("system.slice/kubelet.service")
		h.Kubelet.ID = 4711
	}
	rs, err := rules.CompileAmbientHost(h)
	if err != nil {
		t.Fatal(err)
	}
	b, err := compat.Choose(backend)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Apply(ns, rs, compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	return startAgent(t, serve.Options{Host: func() (agent.HostRules, error) {
		return agent.HostRules{
			NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), Backend: string(backend), Parameters: h,
		}, nil
	}})
}

// With --node, the commands examine the rules of the node for probes of pods in ambient mode.
func TestNodeFlagSelectsTheRulesOfTheNode(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			ns := netnstest.NewPair(t).Pod
			// The commands must decide although the order of these foreign rules relative to
			// Sluice's is not always known.
			for _, family := range []string{"ip", "ip6"} {
				within(t, ns, "nft", "table "+family+` kube-proxy {
					chain filter-output { type filter hook output priority 0; tcp dport 4444 drop; }
					chain nat-postrouting { type nat hook postrouting priority 100; meta mark & 0x4000 != 0 masquerade; }
				}`)
			}
			within(t, ns, "iptables-nft", "-A", "OUTPUT", "-p", "tcp", "--dport", "4444", "-j", "DROP")
			dir := ambientNode(t, ns, backend)
			const probe = "out tcp 10.244.1.1:40000 > 10.244.1.5:8080 uid 0 mark 0x2000"
			try := func(code int, want string, args ...string) {
				t.Helper()
				got, stdout, stderr := runCommand(dir, "", args...)
				if got != code || !strings.Contains(stdout, want) {
					t.Errorf("%v: exit code %d, want %d with %q: %s%s", args, got, code, want, stdout, stderr)
				}
			}
			try(0, "holds exactly this ruleset", "check", "--node")
			try(0, "\"bypasses\": [],\n    \"unknown\": []", "check", "--node", "--output", "json")
			try(0, "snat ip to 169.254.7.127", "show", "--node")
			try(0, "169.254.7.127", "show", "--node", "--live")
			try(0, "169.254.7.127", "explain", "--node", probe)
			try(0, "169.254.7.127", "explain", "--node", "--live", probe)
			try(0, "the node's rules for probes can work", "doctor", "--node")
			try(0, "probes to fd00:10:244:1::5 get the source fd16:9254:7127:1337:ffff:ffff:ffff:ffff",
				"doctor", "--node")
			try(0, "0 packets", "trace", "--node", "--for", "100ms")

			// doctor finds a foreign rule by its effect.
			within(t, ns, "nft",
				`table ip other { chain late { type nat hook postrouting priority 90; ip daddr 10.244.1.0/24 masquerade; }; }`)
			try(1, "probes to 10.244.1.5 do not get the source 169.254.7.127; their source is changed by ip other late #1: ", "doctor", "--node")
			within(t, ns, "nft", "flush", "ruleset")
			if backend == compat.BackendLegacy {
				within(t, ns, "iptables-legacy", "-t", "nat", "-F")
			}
			try(1, "missing", "check", "--node")
			try(1, "no rule changes the source of probes to 10.244.1.5 to 169.254.7.127", "doctor", "--node")
		})
	}
}

// A trace on the node shows the rule that gives a probe its source.
func TestTraceOnTheNode(t *testing.T) {
	pair := netnstest.NewPair(t)
	// Without the kubelet's cgroup, connections of user 0 count as probes.
	h := rules.DefaultAmbientHost()
	h.Pods = []netip.Addr{pair.NeighborIP4}
	rs, err := rules.CompileAmbientHost(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nft.Apply(pair.Pod, rs); err != nil {
		t.Fatal(err)
	}
	listenAt(t, pair.Neighbor, ":8080")
	lines, end := startTrace(t, pair.Pod, "-v")
	to := netip.AddrPortFrom(pair.NeighborIP4, 8080).String()
	disconnect := connect(t, pair.Pod, "", to, 0)
	block := ""
	// The neighbor has no route to 169.254.7.127 and does not answer. blockOf would wait for the
	// answer.
	for !strings.Contains(block, "postrouting") && lines.Scan() {
		block += lines.Text() + "\n"
	}
	disconnect()
	for _, want := range []string{
		"> 10.244.1.1:8080 uid 0", ": not captured: the source of probes (169.254.7.127)", "snat ip to 169.254.7.127",
	} {
		if !strings.Contains(block, want) {
			t.Errorf("got %s\nwant %q", block, want)
		}
	}
	if code := end(); code != 0 {
		t.Errorf("exit code %d after an interrupt, want 0", code)
	}
}

// TestErrorsOfNodeFlag covers an agent without rules, a missing agent, and flags that exclude
// --node.
func TestErrorsOfNodeFlag(t *testing.T) {
	for _, row := range []struct {
		name, dir string
		code      int
		args      []string
		want      string
	}{
		{
			"ambient mode is disabled", startAgent(t, serve.Options{}), 2,
			[]string{"check", "--node"},
			"rules: this node has no rules for probes: ambient mode is disabled in this agent",
		},
		{
			"no agent", t.TempDir(), 3,
			[]string{"doctor", "--node"},
			"--node works only in the agent's container",
		},
		{
			"parameters of a pod", t.TempDir(), 2,
			[]string{"check", "--node", "-b", "*", "--netns", "x"},
			"rules: the node agent provides the node's rules: --istio-inbound-ports cannot be combined with --node\n" +
				"rules: the node agent provides the node's rules: --netns cannot be combined with --node\n",
		},
		{
			"a pod", t.TempDir(), 2,
			[]string{"trace", "--node", "--pod", "default/web"},
			"--pod cannot be combined with --node",
		},
	} {
		code, _, stderr := runCommand(row.dir, "", row.args...)
		if code != row.code || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: exit code %d, want %d with %q: %s", row.name, code, row.code, row.want,
				stderr)
		}
	}
}
