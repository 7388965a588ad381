package ambient_test

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// istioCommands contains, by istio-cni's backend, the commands that add some of istio-cni's objects
// to a pod.
var istioCommands = map[string][]string{
	"nftables": {
		`nft add table inet istio-ambient-nat`,
		`nft add chain inet istio-ambient-nat output { type nat hook output priority -100; }`,
		`nft add chain inet istio-ambient-nat istio-output`,
		`nft add rule inet istio-ambient-nat output jump istio-output`,
		`nft add rule inet istio-ambient-nat istio-output meta l4proto tcp meta mark & 0xfff != 0x539 counter redirect to :15001`,
	},
	"iptables-legacy": {
		`iptables-legacy -t nat -N ISTIO_OUTPUT`,
		`iptables-legacy -t nat -A OUTPUT -j ISTIO_OUTPUT`,
		`iptables-legacy -t nat -A ISTIO_OUTPUT -p tcp -m mark ! --mark 0x539/0xfff -j REDIRECT --to-ports 15001`,
	},
}

// enrollByIstio adds rules and routes of istio-cni to a namespace.
func enrollByIstio(t *testing.T, ns *netns.NS, backend string) {
	t.Helper()
	for _, line := range slices.Concat(istioCommands[backend], []string{
		"ip rule add fwmark 0x111/0xfff lookup 100 priority 32764",
		"ip route replace local default dev lo table 100",
	}) {
		runIn(t, ns, strings.Fields(line)...)
	}
}

func runIn(t *testing.T, ns *netns.NS, argv ...string) string {
	t.Helper()
	var out []byte
	if err := ns.Do(func() (err error) {
		out, err = exec.Command(argv[0], argv[1:]...).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

func istioObjects(t *testing.T, ns *netns.NS) []string {
	t.Helper()
	found, err := compat.FindIstioObjects(ns, rules.IstioAmbientPolicy())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRulesOfIstioCNIAreRemovedFromAPodThatLeaves covers a node from which istio-cni was
// uninstalled. The agent removes the rules of istio-cni from a pod that leaves ambient mode.
func TestRulesOfIstioCNIAreRemovedFromAPodThatLeaves(t *testing.T) {
	for backend := range istioCommands {
		t.Run(backend, func(t *testing.T) {
			env, ns, _ := startEnrolled(t, nil)
			enrollByIstio(t, ns, backend)
			env.put("web", labeled(modeLabel, "none"))
			rulestest.Eventually(t, "the pod has left ambient mode", func() bool { return env.annotation("web") == "" })
			if remaining := istioObjects(t, ns); len(remaining) > 0 {
				t.Errorf("objects of istio-cni remain: %q", remaining)
			}
			if !hasNoRules(t, ns) {
				t.Error("rules of Sluice remain")
			}
		})
	}
}

func TestRulesOfIstioCNIAreRemovedAtUninstallation(t *testing.T) {
	env, ns, _ := startEnrolled(t, nil)
	enrollByIstio(t, ns, "nftables")
	env.endRun()
	if err := env.Uninstall(t.Context()); err != nil {
		t.Error(err)
	}
	if remaining := istioObjects(t, ns); len(remaining) > 0 {
		t.Errorf("objects of istio-cni remain: %q", remaining)
	}
	if !hasNoRules(t, ns) || env.annotation("web") != "" {
		t.Error("the pod is still in ambient mode")
	}
	env.Close()
}

// TestIstioCNITakesPodsOver covers an istio-cni that runs when the agent is uninstalled: a pod with
// rules of istio-cni stays in ambient mode.
func TestIstioCNITakesPodsOver(t *testing.T) {
	for backend := range istioCommands {
		t.Run(backend, func(t *testing.T) {
			env, ns, z := startEnrolled(t, nil)
			enrollByIstio(t, ns, backend)
			listenAsIstio(t, env)
			before := istioObjects(t, ns)
			env.endRun()
			if err := env.Uninstall(t.Context()); err != nil {
				t.Error(err)
			}
			if !hasNoRules(t, ns) {
				t.Error("the pod has rules of Sluice")
			}
			if got := istioObjects(t, ns); !slices.Equal(got, before) {
				t.Errorf("objects of istio-cni %q, want %q", got, before)
			}
			if routes := runIn(t, ns, "ip", "route", "show", "table", "100"); !strings.Contains(routes, "local default") {
				t.Errorf("routes in table 100: %s, want the local default route of istio-cni", routes)
			}
			if got := env.patched(); got != "" || len(z.Pods()) != 1 {
				t.Errorf("patches %s, want none; ztunnel has %v, want one pod", got, z.Pods())
			}
			env.Close()
		})
	}
}

// TestIstioCNIDoesNotTakeOtherPodsOver covers a pod without rules of istio-cni, which leaves
// ambient mode although istio-cni runs.
func TestIstioCNIDoesNotTakeOtherPodsOver(t *testing.T) {
	env, ns, _ := startEnrolled(t, nil)
	listenAsIstio(t, env)
	env.endRun()
	if err := env.Uninstall(t.Context()); err != nil {
		t.Error(err)
	}
	if !hasNoRules(t, ns) || env.annotation("web") != "" {
		t.Error("the pod is still in ambient mode")
	}
	env.Close()
}

// listenAsIstio replaces the agent's socket, like istio-cni when it starts.
func listenAsIstio(t *testing.T, env *testEnv) {
	t.Helper()
	l, err := net.Listen("unixpacket", env.socket+".istio")
	if err == nil {
		err = os.Rename(env.socket+".istio", env.socket)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	rulestest.Eventually(t, "the agent has lost its socket", env.ztunnels.IsReplaced)
}
