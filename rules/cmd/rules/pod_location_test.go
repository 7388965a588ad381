package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
)

// With --pod, the node agent provides the pod's desired rules and its network namespace.
func TestPodFlagSelectsAPodOfTheNode(t *testing.T) {
	ns := netnstest.New(t)
	good := meshPod(t, ns)
	drifted := good
	other := *good.Redirect
	other.OutboundExcludePorts = nil
	drifted.Redirect = &other
	stopped, orphaned, uncaptured, undecided, both := good, good, good, good, drifted
	stopped.NetNS = ""
	orphaned.Orphaned = true
	uncaptured.IPv6Bypass = "IPv6 traffic of fd00::7 bypasses the proxy"
	undecided.IPv6Unknown = "the pod's addresses cannot be read: too many open files"
	both.IPv6Bypass = uncaptured.IPv6Bypass
	dir := startAgentWithPods(t, map[string]agent.Location{
		"web": good, "drifted": drifted, "stopped": stopped, "orphaned": orphaned,
		"uncaptured": uncaptured, "undecided": undecided, "both": both,
		"plain": {
			Decision: "skip", Reason: "not-injected",
			Message: "there is no annotation sidecar.istio.io/status",
		},
	})
	const packet = "out tcp 10.244.1.5:40000 > 10.96.0.1:5432 uid 1000"
	const notRedirected = "rules: pod default/plain is not redirected: skip (not-injected): there is no annotation sidecar.istio.io/status"
	for _, row := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // substrings
	}{
		{
			"show the desired rules",
			[]string{"show", "--pod", "default/web"},
			0,
			"tcp dport 5432 return", "",
		},
		{
			"check a pod with the desired rules",
			[]string{"check", "--pod", "default/web"},
			0,
			"holds exactly this ruleset, by nft", "",
		},
		{
			"check an orphaned pod",
			[]string{"check", "--pod", "default/orphaned"},
			0,
			"holds exactly this ruleset, by nft",
			"warning: the API server no longer has pod default/orphaned, but its sandbox exists",
		},
		{
			"check a pod with other rules",
			[]string{"check", "--pod", "default/drifted"},
			1,
			"1 difference in /proc/", "",
		},
		{
			"check a pod whose IPv6 is not captured",
			[]string{"check", "--pod", "default/uncaptured"},
			1,
			"by nft\nbypass: IPv6 is not captured\n  IPv6 traffic of fd00::7 bypasses the proxy\n", "",
		},
		{
			"check a pod whose addresses the agent cannot read",
			[]string{"check", "--pod", "default/undecided"},
			1,
			"by nft\nunknown: IPv6 is not captured, and may bypass the proxy\n" +
				"  the pod's addresses cannot be read: too many open files\n", "",
		},
		{
			"check a pod whose addresses the agent cannot read, as JSON",
			[]string{"check", "--pod", "default/undecided", "--output", "json"},
			1,
			`"ipv6Unknown": "the pod's addresses cannot be read: too many open files"`, "",
		},
		{
			"diagnose a pod whose addresses the agent cannot read",
			[]string{"doctor", "--pod", "default/undecided"},
			0,
			"it is unknown whether IPv6 traffic bypasses the proxy: the pod's addresses cannot be read", "",
		},
		{
			"check a pod with other rules and uncaptured IPv6",
			[]string{"check", "--pod", "default/both"},
			1,
			"by nft\nbypass: IPv6 is not captured\n  IPv6 traffic of fd00::7 bypasses the proxy\n", "",
		},
		{
			"diagnose a pod whose IPv6 is not captured",
			[]string{"doctor", "--pod", "default/uncaptured"},
			1,
			"IPv6 is not captured: IPv6 traffic of fd00::7 bypasses the proxy", "",
		},
		{
			"explain a packet with the desired rules",
			[]string{"explain", "--pod", "default/drifted", packet},
			0, "redirected to port 15001",
			"",
		},
		{
			"explain a packet with the rules of the kernel",
			[]string{"explain", "--live", "--pod", "default/drifted", packet},
			0, "not captured",
			"",
		},
		{
			"explain the decision for a redirected pod",
			[]string{"explain", "--pod", "default/web"},
			0,
			"default/web: redirect (mesh-pod)\n\ntable inet sluice", "",
		},
		{
			"explain the decision for a pod that is not redirected",
			[]string{"explain", "--pod", "default/plain"},
			0,
			"default/plain: skip (not-injected): there is no annotation sidecar.istio.io/status\n",
			"",
		},
		{
			"explain a packet of a pod that is not redirected",
			[]string{"explain", "--pod", "default/plain", packet},
			0,
			"  note: the plugin writes no rules for the pod; foreign rules are not considered\n\nout tcp", "",
		},
		{
			"diagnose a pod",
			[]string{"doctor", "--pod", "default/web"},
			0,
			"table inet sluice exists", "",
		},
		{
			"compare equal rules of the pod and the kernel",
			[]string{"diff", "--pod", "default/web"},
			0, "equivalent", "",
		},
		{
			"compare different rules of the pod and the kernel",
			[]string{"diff", "--pod", "default/drifted"},
			1,
			"the desired ruleset of pod default/drifted", "",
		},
		{
			"show a pod that is not redirected",
			[]string{"show", "--pod", "default/plain"},
			2,
			"", notRedirected,
		},
		{
			"check a pod that is not redirected",
			[]string{"check", "--pod", "default/plain"},
			2,
			"", notRedirected,
		},
		{
			"diff of a pod that is not redirected",
			[]string{"diff", "--pod", "default/plain"},
			2,
			"", notRedirected,
		},
		{
			"doctor for a pod that is not redirected",
			[]string{"doctor", "--pod", "default/plain"},
			2, "", notRedirected,
		},
		{
			"a pod of another node",
			[]string{"check", "--pod", "default/db"},
			2, "",
			"rules: pod default/db is not on this node: there is no such pod\n",
		},
		{
			"a pod without a network namespace",
			[]string{"check", "--pod", "default/stopped"},
			2, "",
			"pod default/stopped: its network namespace was not found on this node",
		},
		{
			"show a pod without a network namespace",
			[]string{"show", "--pod", "default/stopped"},
			0,
			"table inet sluice", "",
		},
		{
			"a pod's name without its Kubernetes namespace",
			[]string{"check", "--pod", "web"},
			2, "",
			`rules: --pod: invalid pod "web": want NAMESPACE/NAME, such as default/web`,
		},
		{
			"a path as a name",
			[]string{"show", "--pod", "../../web"},
			2, "",
			`invalid pod "../../web"`,
		},
		{
			"a parameter with --pod",
			[]string{"check", "--pod", "default/web", "-b", "80"},
			2, "",
			"--istio-inbound-ports cannot be combined with --pod",
		},
		{
			"a namespace with --pod",
			[]string{"check", "--pod", "default/web", "--pid", "1"},
			2, "",
			"--pod and --pid: give only one of them",
		},
		{
			"live rules without a packet",
			[]string{"explain", "--live", "--pod", "default/web"},
			2,
			"", "--live: no packet to explain",
		},
		{
			"two sides with --pod",
			[]string{"diff", "--pod", "default/web", "--left", "save:a", "--right", "save:b"},
			2,
			"", "name both sides",
		},
		{
			"a relative directory",
			[]string{"check", "--pod", "default/web", "--cni-agent-run-dir", "run"},
			2, "",
			`"run" is not an absolute path`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := runCommand(dir, "", row.args...)
			if code != row.code || !strings.Contains(stdout, row.stdout) ||
				!strings.Contains(stderr, row.stderr) ||
				row.stderr == "" && stderr != "" || row.stdout == "" && stdout != "" {
				t.Errorf("exit code %d, want %d\nstdout %s\nwant %q\nstderr %s\nwant %q", code,
					row.code, stdout, row.stdout, stderr, row.stderr)
			}
		})
	}
}

// explain prints a note if the IPv6 of a running pod is not captured.
func TestExplainReportsUncapturedIPv6(t *testing.T) {
	single := meshPod(t, netnstest.New(t))
	dual := single
	dualStack := *single.Redirect
	dualStack.IPv6, dual.Redirect = true, &dualStack
	stopped := single
	stopped.NetNS = ""
	dir := startAgentWithPods(t, map[string]agent.Location{
		"single": single, "dual": dual, "stopped": stopped,
	})
	const v4, v6 = "10.244.1.5", "fd00::5"
	for _, row := range []struct {
		pod       string
		addresses []string
		note      string
	}{
		{"single", []string{v4, v6}, "  note: the pod's IPv6 is not captured, but the pod has fd00::5\n"},
		{"single", []string{v4, "fe80::1"}, ""},
		{"dual", []string{v4, v6}, ""},
		{"stopped", []string{v4, v6}, ""},
	} {
		s := thisSystem()
		s.addresses = func(*netns.NS) (list []netip.Addr, _ error) {
			for _, a := range row.addresses {
				list = append(list, netip.MustParseAddr(a))
			}
			return list, nil
		}
		code, stdout, stderr := runCommandOn(s, dir, "", "explain", "--pod", "default/"+row.pod)
		want := "default/" + row.pod + ": redirect (mesh-pod)\n" + row.note + "\ntable inet sluice"
		if code != 0 || !strings.HasPrefix(stdout, want) {
			t.Errorf("%s with %v: exit code %d, want 0 with %q\n%s%s", row.pod, row.addresses, code,
				want, stdout, stderr)
		}
	}
}

// istioLog returns the log of an istio-init container.
func istioLog(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", "script", "diff.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	_, log, _ := strings.Cut(string(script), "\n-- istio.log --\n")
	log, _, _ = strings.Cut(log, "\n-- ")
	return log
}

// diff compares the log of a pod's istio-init container with the live rules, although Sluice does
// not redirect the pod.
func TestDiffOfAnInitContainerLogAndTheLiveRules(t *testing.T) {
	ns := netnstest.New(t)
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD())
	dir := startAgentWithPods(t, map[string]agent.Location{"web": {
		UID: "1", NetNS: path, Decision: "skip", Reason: "istio-init",
	}})
	diffExits := func(want int) {
		t.Helper()
		code, stdout, stderr := runCommand(dir, istioLog(t), "diff", "--pod", "default/web",
			"--istio-log", "-")
		if code != want || stderr != "" {
			t.Errorf("exit code %d, want %d: %s%s", code, want, stdout, stderr)
		}
	}
	diffExits(1)
	code, _, stderr := runCommand(dir, "", "apply", "-u", "1337", "-b", "*", "-i", "*", "-d",
		"15090,15021,15020",
		"--pod-ip", "10.244.1.5", "--netns", path)
	if code != 0 {
		t.Fatal(stderr)
	}
	diffExits(0)
}

// If the agent reports that a pod is in ambient mode, the commands examine the pod's redirection to
// ztunnel.
func TestPodFlagSelectsAPodInAmbientMode(t *testing.T) {
	ns := netnstest.NewPair(t).Pod
	a := rules.DefaultAmbient()
	a.DNS = false
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		t.Fatal(err)
	}
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backend.Apply(ns, rs, compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	web := agent.Location{
		UID: "1", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), Decision: "ambient",
		Reason: "ambient-pod", Backend: "nft", Ambient: &a,
	}
	drifted := web
	other := a
	other.DNS = true
	drifted.Ambient = &other
	dir := startAgentWithPods(t, map[string]agent.Location{"web": web, "drifted": drifted})
	for _, row := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"show", "--pod", "default/web"}, 0, "redirect to :15006"},
		{[]string{"check", "--pod", "default/web"}, 0, "holds exactly this ruleset, by nft"},
		{[]string{"check", "--pod", "default/drifted"}, 1, "missing    oifname"},
		{[]string{"doctor", "--pod", "default/web"}, 0, "capture can work in this namespace"},
		{
			[]string{"explain", "--pod", "default/web", "out tcp 10.244.1.5:40000 > 10.96.0.1:80 uid 1000"},
			0,
			"redirected to port 15001",
		},
		{[]string{"diff", "--pod", "default/web"}, 0, "equivalent: every packet is treated alike"},
		{
			[]string{"validate", "--pod", "default/web", "--probe-timeout", "60s"},
			0,
			"ok           ztunnel calls the application as a client, 10.244.1.5",
		},
	} {
		code, stdout, stderr := runCommand(dir, "", row.args...)
		if code != row.code || !strings.Contains(stdout, row.want) || strings.Contains(stdout, "foreign policy rule") {
			t.Errorf("%v: exit code %d, want %d with %q and without foreign policy rules: %s%s",
				row.args, code, row.code, row.want, stdout, stderr)
		}
	}
}

// TestLiveRulesOfAPodComeFromBothBackends covers a pod with Sluice's rules in nf_tables and a
// foreign rule in iptables-legacy that disables NAT for the packet.
func TestLiveRulesOfAPodComeFromBothBackends(t *testing.T) {
	ns := netnstest.New(t)
	dir := startAgentWithPods(t, map[string]agent.Location{"web": meshPod(t, ns)})
	within(t, ns, "iptables-legacy", "-t", "raw", "-A", "OUTPUT", "-p", "tcp", "-j", "NOTRACK")
	const redirected = "redirected to port 15001"
	for _, row := range []struct {
		args         []string
		isRedirected bool
		stderr       string
	}{
		{[]string{"--pod", "default/web"}, false, ""},
		{[]string{"--pod", "default/web", "--backend", "auto"}, false, ""},
		{
			[]string{"--pod", "default/web", "--backend", "nft"},
			true,
			"left out: rules of iptables-legacy, because of --backend nft\n",
		},
	} {
		args := append([]string{"explain", "--live"}, row.args...)
		code, stdout, stderr := runCommand(dir, "",
			append(args, "out tcp 10.244.1.5:40000 > 10.96.0.1:80 uid 1000")...)
		if code != 0 || strings.Contains(stdout, redirected) != row.isRedirected ||
			!strings.Contains(stderr, row.stderr) {
			t.Errorf("%q: exit code %d: %s%s\nwant 0, redirected: %t, and on stderr %q", args, code,
				stdout, stderr, row.isRedirected, row.stderr)
		}
	}
	code, stdout, stderr := runCommand(dir, "", "show", "--live", "--pod", "default/web")
	if code != 0 || !strings.Contains(stdout, "ip raw OUTPUT") {
		t.Errorf("show: exit code %d: %s%s\nwant 0 and the rule of iptables-legacy", code, stdout,
			stderr)
	}
}

// diff compares the log of an istio-init container with the desired rules of a redirected pod.
func TestDiffOfAnInitContainerLogAndADesiredRuleset(t *testing.T) {
	log := istioLog(t)
	dir := startAgentWithPods(t, map[string]agent.Location{"web": meshPod(t, netnstest.New(t))})
	code, stdout, stderr := runCommand(dir, log, "diff", "--pod", "default/web", "--istio-log", "-",
		"-o", "json")
	var result struct {
		Left, Right struct{ Name string }
		Verdict     string
	}
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	if code != 1 || result.Verdict != "different" ||
		result.Left.Name != "the desired ruleset of pod default/web" || result.Right.Name != "standard input" {
		t.Errorf("exit code %d: %+v; want 1, different, for the desired rules and standard input",
			code, result)
	}
}

// TestPodFlagWithoutAnAgent covers a socket that does not exist, and one that is never read.
func TestPodFlagWithoutAnAgent(t *testing.T) {
	code, _, stderr := runCommand(t.TempDir(), "", "check", "--pod", "default/web")
	if code != 3 || !strings.Contains(stderr,
		"rules: pod default/web: no node agent is running here: socket /") ||
		!strings.HasSuffix(stderr, "no agent listens; --pod works only in the agent's container\n") {
		t.Errorf("no agent: exit code %d: %s\nwant 3, and that no agent listens", code, stderr)
	}
	dir := t.TempDir()
	path := agent.SocketIn(dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := time.Now()
	code, _, stderr = runCommand(dir, "", "check", "--pod", "default/web")
	const want = "rules: pod default/web: the node agent does not answer within 3s\n"
	if d := time.Since(start); code != 3 || stderr != want || d > 30*time.Second {
		t.Errorf("an agent that does not answer: exit code %d after %v: %s\nwant 3 with %s", code,
			d, stderr, want)
	}
}

// FuzzPodName parses any text. A valid name has two parts that are safe in a path, and its String
// is the text.
func FuzzPodName(f *testing.F) {
	for _, text := range []string{
		"default/web", "a/b.c", "", "/", "../..", "a/b/c", "A/b", "a/b..c",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := parsePodName(text)
		if err == nil && (name.String() != text || strings.Count(text, "/") != 1 ||
			strings.Contains(text, "..")) {
			t.Errorf("%q is accepted as %+v, want an error or the same two parts", text, name)
		}
	})
}
