package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// node is a node agent that has these pods, by their names in the namespace default. It returns its
// run directory.
func node(t *testing.T, pods map[string]agent.Location) string {
	t.Helper()
	dir := t.TempDir()
	server := serve.New(serve.Options{
		Socket: agent.SocketIn(dir),
		Locate: func(_ context.Context, namespace, name string) (agent.Location, error) {
			l, found := pods[name]
			if !found || namespace != "default" {
				return l, source.WithKind(source.NotFound, errors.New("there is no such pod"))
			}
			l.Namespace, l.Name = namespace, name
			return l, nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	for deadline := time.Now().Add(10 * time.Second); !server.Listening(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the agent does not listen")
		}
	}
	return dir
}

// command runs the command line besides an agent.
func command(t *testing.T, runDir, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return commandOn(thisSystem(), runDir, stdin, args...)
}

func commandOn(s *system, runDir, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	s.stdin, s.stdout, s.stderr = strings.NewReader(stdin), &out, &problems
	s.variable = func(name string) (string, bool) { return runDir, name == "CNI_AGENT_RUN_DIR" }
	code = run(s, args)
	return code, out.String(), problems.String()
}

// meshPod is the location of a pod of the mesh, whose namespace has what it should have.
func meshPod(t *testing.T, ns *netns.NS) agent.Location {
	t.Helper()
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	r.OutboundExcludePorts = rules.Singles[uint16](5432)
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backend.Apply(ns, rules.MustCompile(r), compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	return agent.Location{
		UID: "1", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), Decision: "redirect",
		Reason: "mesh-pod", Backend: "nft",
		Redirect: &r,
	}
}

// A pod of the node is all that a command need be told: what it should have, and where it is, says
// the agent.
func TestCommandsAboutAPodOfTheNode(t *testing.T) {
	ns := netnstest.New(t)
	good := meshPod(t, ns)
	drifted := good
	other := *good.Redirect
	other.OutboundExcludePorts = nil
	drifted.Redirect = &other
	away := good
	away.NetNS = ""
	dir := node(t, map[string]agent.Location{
		"web": good, "drifted": drifted, "away": away,
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
		stdout, stderr string // parts
	}{
		{
			"what it should have",
			[]string{"show", "--pod", "default/web"},
			0,
			"tcp dport 5432 return", "",
		},
		{
			"it has that",
			[]string{"check", "--pod", "default/web"},
			0,
			"holds exactly this ruleset, by nft", "",
		},
		{
			"it has not",
			[]string{"check", "--pod", "default/drifted"},
			1,
			"1 difference in /proc/", "",
		},
		{
			"a packet in what it should have",
			[]string{"explain", "--pod", "default/drifted", packet},
			0, "redirected to port 15001",
			"",
		},
		{
			"a packet in what the kernel has",
			[]string{"explain", "--live", "--pod", "default/drifted", packet},
			0, "not captured",
			"",
		},
		{
			"why it is redirected",
			[]string{"explain", "--pod", "default/web"},
			0,
			"default/web: redirect (mesh-pod)\n\ntable inet sluice", "",
		},
		{
			"why it is not",
			[]string{"explain", "--pod", "default/plain"},
			0,
			"default/plain: skip (not-injected): there is no annotation sidecar.istio.io/status\n",
			"",
		},
		{
			"what comes in its way",
			[]string{"doctor", "--pod", "default/web"},
			0,
			"table inet sluice exists", "",
		},
		{
			"every packet, in what it should have and what it has",
			[]string{"diff", "--pod", "default/web"},
			0, "equivalent", "",
		},
		{
			"the same where they differ",
			[]string{"diff", "--pod", "default/drifted"},
			1,
			"what pod default/drifted should have", "",
		},
		{
			"no rules of a pod that is left alone",
			[]string{"show", "--pod", "default/plain"},
			2,
			"", notRedirected,
		},
		{"no check of one", []string{"check", "--pod", "default/plain"}, 2, "", notRedirected},
		{"no diff of one", []string{"diff", "--pod", "default/plain"}, 2, "", notRedirected},
		{"no doctor for one", []string{"doctor", "--pod", "default/plain"}, 2, "", notRedirected},
		{
			"a pod that is not here",
			[]string{"check", "--pod", "default/db"},
			2, "",
			"rules: pod default/db is not on this node: there is no such pod\n",
		},
		{
			"a pod without a namespace",
			[]string{"check", "--pod", "default/away"},
			2, "",
			"pod default/away: no network namespace of it was found on this node",
		},
		{
			"its rules are known nevertheless",
			[]string{"show", "--pod", "default/away"},
			0,
			"table inet sluice", "",
		},
		{
			"no name",
			[]string{"check", "--pod", "web"},
			2, "",
			`rules: --pod: "web" names no pod: want NAMESPACE/NAME, such as default/web`,
		},
		{
			"no name, but a path",
			[]string{"show", "--pod", "../../web"},
			2, "",
			`"../../web" names no pod`,
		},
		{
			"a parameter beside it",
			[]string{"check", "--pod", "default/web", "-b", "80"},
			2, "",
			"--istio-inbound-ports cannot be combined with --pod",
		},
		{
			"a namespace beside it",
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
			"two sides besides",
			[]string{"diff", "--pod", "default/web", "--left", "save:a", "--right", "save:b"},
			2,
			"", "name both sides",
		},
		{
			"a directory that is none",
			[]string{"check", "--pod", "default/web", "--cni-agent-run-dir", "run"},
			2, "",
			`"run" is no absolute path`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := command(t, dir, "", row.args...)
			if code != row.code || !strings.Contains(stdout, row.stdout) ||
				!strings.Contains(stderr, row.stderr) ||
				row.stderr == "" && stderr != "" || row.stdout == "" && stdout != "" {
				t.Errorf("exit code %d, want %d\n%s\n%s", code, row.code, stdout, stderr)
			}
		})
	}
}

// The addresses of a running pod report whether a family of it passes the proxy.
func TestExplainNamesTheUncapturedFamily(t *testing.T) {
	single := meshPod(t, netnstest.New(t))
	dual := single
	both := *single.Redirect
	both.IPv6, dual.Redirect = true, &both
	away := single
	away.NetNS = ""
	dir := node(t, map[string]agent.Location{"single": single, "dual": dual, "away": away})
	const v4, v6 = "10.244.1.5", "fd00::5"
	for _, row := range []struct {
		pod       string
		addresses []string
		note      string
	}{
		{"single", []string{v4, v6}, "  note: the pod's IPv6 is not captured: it has fd00::5\n"},
		{"single", []string{v4, "fe80::1"}, ""},
		{"dual", []string{v4, v6}, ""},
		{"away", []string{v4, v6}, ""},
	} {
		s := thisSystem()
		s.addresses = func(*netns.NS) (list []netip.Addr, _ error) {
			for _, a := range row.addresses {
				list = append(list, netip.MustParseAddr(a))
			}
			return list, nil
		}
		code, stdout, stderr := commandOn(s, dir, "", "explain", "--pod", "default/"+row.pod)
		want := "default/" + row.pod + ": redirect (mesh-pod)\n" + row.note + "\ntable inet sluice"
		if code != 0 || !strings.HasPrefix(stdout, want) {
			t.Errorf("%s with %v: exit code %d\n%s%s", row.pod, row.addresses, code, stdout, stderr)
		}
	}
}

// istioLog is the log of an istio-init container.
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

// The log of a pod's own init container is compared with what the kernel holds for the pod: for
// Sluice it is one to be left alone.
func TestTheLogOfAnInitContainerAgainstItsPod(t *testing.T) {
	ns := netnstest.New(t)
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD())
	dir := node(t, map[string]agent.Location{"web": {
		UID: "1", NetNS: path, Decision: "skip", Reason: "istio-init",
	}})
	diff := func(want int) {
		t.Helper()
		code, stdout, stderr := command(t, dir, istioLog(t), "diff", "--pod", "default/web",
			"--istio-log", "-")
		if code != want || stderr != "" {
			t.Errorf("exit code %d, want %d: %s%s", code, want, stdout, stderr)
		}
	}
	diff(1)
	code, _, stderr := command(t, dir, "", "apply", "-u", "1337", "-b", "*", "-i", "*", "-d",
		"15090,15021,15020",
		"--pod-ip", "10.244.1.5", "--netns", path)
	if code != 0 {
		t.Fatal(stderr)
	}
	diff(0)
}

// The log of an init container is compared with what a pod should have now, in one command.
func TestTheLogOfAnInitContainerAgainstAPod(t *testing.T) {
	log := istioLog(t)
	dir := node(t, map[string]agent.Location{"web": meshPod(t, netnstest.New(t))})
	code, stdout, stderr := command(t, dir, log, "diff", "--pod", "default/web", "--istio-log", "-",
		"-o", "json")
	var result struct {
		Left, Right struct{ Name string }
		Verdict     string
	}
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	if code != 1 || result.Verdict != "different" ||
		result.Left.Name != "what pod default/web should have" || result.Right.Name != "-" {
		t.Errorf("exit code %d: %+v", code, result)
	}
}

// Without an agent that answers the error says so, and what it is about.
func TestCommandsWithoutAnAgent(t *testing.T) {
	code, _, stderr := command(t, t.TempDir(), "", "check", "--pod", "default/web")
	if code != 3 || !strings.Contains(stderr,
		"rules: pod default/web: there is no node agent here to ask: socket /") ||
		!strings.HasSuffix(stderr, "it is not running; --pod is for the agent's container\n") {
		t.Errorf("nobody is there: exit code %d: %s", code, stderr)
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
	code, _, stderr = command(t, dir, "", "check", "--pod", "default/web")
	if code != 3 || stderr != "rules: pod default/web: the node agent does not answer within 3s\n" || time.Since(start) > 30*time.Second {
		t.Errorf("it hangs: exit code %d after %v: %s", code, time.Since(start), stderr)
	}
}

// FuzzPodName reads any name: what is one has two parts that could be in a path, and is written as
// it was read.
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
			t.Errorf("%q: %+v", text, name)
		}
	})
}
