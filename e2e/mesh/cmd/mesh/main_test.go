package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// asMesh is the environment variable with which the test binary runs the command.
const asMesh = "MESH_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asMesh) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A testEnv is a pod with application and proxy, and a server outside for all other addresses.
type testEnv struct {
	netnstest.Pair
	t *testing.T
}

// newTestEnv starts the servers, and a proxy that runs as root if transparent is true. The pod has
// no rules.
func newTestEnv(t *testing.T, transparent bool) testEnv {
	env := testEnv{netnstest.NewPair(t), t}
	owner, args := syscall.Credential{
		Uid: 1337, Gid: 1337,
	}, []string{"proxy", "sidecar", "-resolver", env.NeighborIP4.String() + ":53"}
	if transparent {
		owner.Uid, args = 0, append(args, "-transparent")
	}
	env.start(env.Pod, "pod", &owner, args...)
	env.start(env.Pod, "pod", &syscall.Credential{Uid: 1000, Gid: 1000}, "serve", "-tcp", "8080,8443",
		"-udp", "7000")
	env.start(env.Neighbor, "outside", nil, "serve", "-udp", "7000")
	env.start(env.Neighbor, "outside", nil, "dns")
	return env
}

// command returns a command that runs mesh with the credentials.
func (env testEnv) command(pod string, owner *syscall.Credential, args ...string) *exec.Cmd {
	c := exec.CommandContext(env.t.Context(), "/proc/self/exe", args...)
	c.Env = append(os.Environ(), asMesh+"=1", "POD_NAME="+pod)
	c.Stderr = env.t.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
	return c
}

// start runs a server until the test ends.
func (env testEnv) start(ns *netns.NS, pod string, owner *syscall.Credential, args ...string) {
	env.t.Helper()
	c := env.command(pod, owner, args...)
	// Pdeathsig is sent when the starting thread ends, which may be before the end of the test.
	c.SysProcAttr.Pdeathsig = 0
	if err := ns.Do(c.Start); err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// runClient runs a client as the application's user, and decodes its output.
func (env testEnv) runClient(ns *netns.NS, answer any, args ...string) {
	env.t.Helper()
	pod := "pod"
	if ns == env.Neighbor {
		pod = "outside"
	}
	c := env.command(pod, &syscall.Credential{Uid: 1000, Gid: 1000}, args...)
	var out bytes.Buffer
	c.Stdout = &out
	if err := ns.Do(c.Run); err != nil {
		env.t.Fatalf("%v: %v", args, err)
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		env.t.Fatalf("%v: %q: %v", args, out.Bytes(), err)
	}
}

func (env testEnv) get(ns *netns.NS, to netip.AddrPort) path.Report {
	env.t.Helper()
	var r path.Report
	env.runClient(ns, &r, "get", "-wait", "5s", fmt.Sprintf("http://%s/", to))
	return r
}

// redirect applies rules in the pod. By default they capture all connections and DNS queries;
// change can modify the parameters.
func (env testEnv) redirect(change func(r *rules.Redirect)) {
	env.t.Helper()
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All, r.IPv6 = true, true, true
	r.InboundExcludePorts = rules.Singles[uint16](15020, 15021, 15090)
	r.DNS = rules.DNS{Capture: true, All: true}
	change(&r)
	if _, err := nft.Apply(env.Pod, rules.MustCompile(r)); err != nil {
		env.t.Fatal(err)
	}
}

// both returns an address and port for both families.
func both(ipv4, ipv6 netip.Addr, port uint16) []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(ipv4, port), netip.AddrPortFrom(ipv6, port)}
}

func TestReportContainsForwardingProxies(t *testing.T) {
	for _, c := range []struct {
		name        string
		transparent bool
		redirect    func(r *rules.Redirect)
		// Expected paths of requests from and to the pod.
		out, in path.Expected
	}{
		{
			name: "REDIRECT", redirect: func(*rules.Redirect) {},
			out: path.Expected{Server: "outside", Outbound: true},
			in:  path.Expected{Server: "pod", Inbound: true},
		},
		{
			name: "TPROXY", transparent: true, redirect: func(r *rules.Redirect) {
				r.Mode = rules.ModeTProxy
			},
			out: path.Expected{Server: "outside", Outbound: true},
			in:  path.Expected{Server: "pod", Inbound: true, Transparent: true},
		},
		{
			name: "no rules",
			out:  path.Expected{Server: "outside"}, in: path.Expected{Server: "pod"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := newTestEnv(t, c.transparent)
			if c.redirect != nil {
				env.redirect(c.redirect)
			}
			for _, to := range both(env.NeighborIP4, env.NeighborIP6, 8080) {
				check(t, env.get(env.Pod, to), c.out)
			}
			for _, to := range both(env.PodIP4, env.PodIP6, 8080) {
				check(t, env.get(env.Neighbor, to), c.in)
			}
			for _, to := range both(env.PodIP4, env.PodIP6, 15021) {
				check(t, env.get(env.Neighbor, to), path.Expected{Server: "pod", At: "proxy 15021"})
			}
		})
	}
}

// check fails the test unless the request took the path want. It also tests that path.Captured
// rejects a request that no proxy forwarded.
func check(t *testing.T, r path.Report, want path.Expected) {
	t.Helper()
	if err := r.Check(want); err != nil {
		t.Error(err)
	}
	if !want.Inbound && !want.Outbound && r.Check(path.Captured(want.Server)) == nil {
		t.Errorf("a request that no proxy forwarded counts as captured: %+v", r)
	}
}

func TestLookupReportsTheProxy(t *testing.T) {
	env := newTestEnv(t, false)
	for _, proxy := range []string{"", "pod"} {
		for _, args := range [][]string{{}, {"-tcp"}, {"-6"}} {
			var r name.Resolution
			env.runClient(env.Pod, &r,
				append(append([]string{
					"lookup", "-wait", "5s", "-server", env.NeighborIP4.String() + ":53",
				}, args...), "a.example.")...)
			if r.Proxy != proxy || r.Server != "outside" || len(r.Addresses) != 1 ||
				r.Peer.Addr() != env.PodIP4 {
				t.Errorf("lookup %v: %+v, want proxy %q, server outside, one address, and peer %s", args, r,
					proxy, env.PodIP4)
			}
		}
		env.redirect(func(*rules.Redirect) {})
	}
}

func TestDatagramsAreAnswered(t *testing.T) {
	env := newTestEnv(t, false)
	env.redirect(func(*rules.Redirect) {})
	var r path.Report
	env.runClient(env.Pod, &r, "udp", "-wait", "5s", env.NeighborIP4.String()+":7000")
	if r.Answer == nil || r.Answer.Server != "outside" || r.Answer.Peer != r.Local {
		t.Errorf("report %+v, want an answer from outside to the client's address", r)
	}
}

func TestServerRepeatsTheLastAnswer(t *testing.T) {
	env := newTestEnv(t, false)
	env.redirect(func(*rules.Redirect) {})
	first := env.get(env.Neighbor, netip.AddrPortFrom(env.PodIP4, 8080))
	var last path.Report
	env.runClient(env.Neighbor, &last, "get", fmt.Sprintf("http://%s:8080/last/", env.PodIP4))
	if last.Answer == nil || first.Answer == nil || last.Answer.Peer != first.Answer.Peer ||
		len(last.Answer.Via) != 1 {
		t.Errorf("repeated answer %+v, want the first one: %+v", last.Answer, first.Answer)
	}
}

func TestGetCapturedFailsForUncapturedTraffic(t *testing.T) {
	env := newTestEnv(t, false)
	env.get(env.Pod, netip.AddrPortFrom(env.NeighborIP4, 8080))
	c := env.command("pod", nil, "get", "-captured", fmt.Sprintf("http://%s:8080/", env.NeighborIP4))
	c.WaitDelay = time.Second
	if err := env.Pod.Do(c.Run); c.ProcessState.ExitCode() != 1 {
		t.Errorf("get -captured of an uncaptured request: %v, want exit code 1", err)
	}
}
