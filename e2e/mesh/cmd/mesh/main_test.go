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

// asMesh is the environment variable that makes the test's executable run the command.
const asMesh = "MESH_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asMesh) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A world is a pod with an application and a proxy, and a server outside of it for all other
// addresses.
type world struct {
	netnstest.Pair
	t *testing.T
}

func newWorld(t *testing.T, transparent bool) world {
	w := world{netnstest.NewPair(t), t}
	owner, args := syscall.Credential{
		Uid: 1337, Gid: 1337,
	}, []string{"proxy", "sidecar", "-resolver", w.NeighbourIP4.String() + ":53"}
	if transparent {
		owner.Uid, args = 0, append(args, "-transparent")
	}
	w.start(w.Pod, "pod", &owner, args...)
	w.start(w.Pod, "pod", &syscall.Credential{Uid: 1000, Gid: 1000}, "serve", "-tcp", "8080,8443",
		"-udp", "7000")
	w.start(w.Neighbour, "outside", nil, "serve", "-udp", "7000")
	w.start(w.Neighbour, "outside", nil, "dns")
	return w
}

// command returns a command that runs the program in a namespace with the given credentials.
func (w world) command(pod string, owner *syscall.Credential, args ...string) *exec.Cmd {
	c := exec.CommandContext(w.t.Context(), "/proc/self/exe", args...)
	c.Env = append(os.Environ(), asMesh+"=1", "POD_NAME="+pod)
	c.Stderr = w.t.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
	return c
}

// start runs a server until the test ends.
func (w world) start(ns *netns.NS, pod string, owner *syscall.Credential, args ...string) {
	w.t.Helper()
	c := w.command(pod, owner, args...)
	// The death signal depends on the starting thread, which may end before the test.
	c.SysProcAttr.Pdeathsig = 0
	if err := ns.Do(c.Start); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// ask runs a client as the application's user and decodes its output.
func (w world) ask(ns *netns.NS, answer any, args ...string) {
	w.t.Helper()
	pod := "pod"
	if ns == w.Neighbour {
		pod = "outside"
	}
	c := w.command(pod, &syscall.Credential{Uid: 1000, Gid: 1000}, args...)
	var out bytes.Buffer
	c.Stdout = &out
	if err := ns.Do(c.Run); err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		w.t.Fatalf("%v: %q: %v", args, out.Bytes(), err)
	}
}

func (w world) get(ns *netns.NS, to netip.AddrPort) path.Report {
	w.t.Helper()
	var r path.Report
	w.ask(ns, &r, "get", "-wait", "5s", fmt.Sprintf("http://%s/", to))
	return r
}

func (w world) redirect(change func(r *rules.Redirect)) {
	w.t.Helper()
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All, r.IPv6 = true, true, true
	r.InboundExcludePorts = rules.Singles[uint16](15020, 15021, 15090)
	r.DNS = rules.DNS{Capture: true, All: true}
	change(&r)
	if _, err := nft.Apply(w.Pod, rules.MustCompile(r)); err != nil {
		w.t.Fatal(err)
	}
}

// both returns an address and port for both families.
func both(four, six netip.Addr, port uint16) []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(four, port), netip.AddrPortFrom(six, port)}
}

func TestEachProxyThatCarriesARequestIsSeen(t *testing.T) {
	for _, c := range []struct {
		name        string
		transparent bool
		redirect    func(r *rules.Redirect)
		// The expected paths of requests from the pod, and to it.
		out, in path.Expected
	}{
		{
			name: "by REDIRECT", redirect: func(*rules.Redirect) {},
			out: path.Expected{Server: "outside", Outbound: true},
			in:  path.Expected{Server: "pod", Inbound: true},
		},
		{
			name: "by TPROXY", transparent: true, redirect: func(r *rules.Redirect) {
				r.Mode = rules.ModeTProxy
			},
			out: path.Expected{Server: "outside", Outbound: true},
			in:  path.Expected{Server: "pod", Inbound: true, Transparent: true},
		},
		{
			name: "without rules none is",
			out:  path.Expected{Server: "outside"}, in: path.Expected{Server: "pod"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.transparent)
			if c.redirect != nil {
				w.redirect(c.redirect)
			}
			for _, to := range both(w.NeighbourIP4, w.NeighbourIP6, 8080) {
				check(t, w.get(w.Pod, to), c.out)
			}
			for _, to := range both(w.PodIP4, w.PodIP6, 8080) {
				check(t, w.get(w.Neighbour, to), c.in)
			}
			for _, to := range both(w.PodIP4, w.PodIP6, 15021) {
				check(t, w.get(w.Neighbour, to), path.Expected{Server: "pod", At: "proxy 15021"})
			}
		})
	}
}

func check(t *testing.T, r path.Report, w path.Expected) {
	t.Helper()
	if err := r.Check(w); err != nil {
		t.Error(err)
	}
	if !w.Inbound && !w.Outbound && r.Check(path.Captured(w.Server)) == nil {
		t.Errorf("a request that no proxy carried counts as captured: %+v", r)
	}
}

func TestDNSQueriesNameTheirProxy(t *testing.T) {
	w := newWorld(t, false)
	for _, proxy := range []string{"", "pod"} {
		for _, args := range [][]string{{}, {"-tcp"}, {"-6"}} {
			var r name.Resolution
			w.ask(w.Pod, &r,
				append(append([]string{
					"lookup", "-wait", "5s", "-server", w.NeighbourIP4.String() + ":53",
				}, args...), "a.example.")...)
			if r.Proxy != proxy || r.Server != "outside" || len(r.Addresses) != 1 ||
				r.Peer.Addr() != w.PodIP4 {
				t.Errorf("lookup %v: %+v, want it carried by %q", args, r, proxy)
			}
		}
		w.redirect(func(*rules.Redirect) {})
	}
}

func TestDatagramsAreEchoed(t *testing.T) {
	w := newWorld(t, false)
	w.redirect(func(*rules.Redirect) {})
	var r path.Report
	w.ask(w.Pod, &r, "udp", "-wait", "5s", w.NeighbourIP4.String()+":7000")
	if r.Answer == nil || r.Answer.Server != "outside" || r.Answer.Peer != r.Local {
		t.Errorf("%+v", r)
	}
}

func TestAServerRemembersWhoAskedLast(t *testing.T) {
	w := newWorld(t, false)
	w.redirect(func(*rules.Redirect) {})
	asked := w.get(w.Neighbour, netip.AddrPortFrom(w.PodIP4, 8080))
	var told path.Report
	w.ask(w.Neighbour, &told, "get", fmt.Sprintf("http://%s:8080/last/", w.PodIP4))
	if told.Answer == nil || asked.Answer == nil || told.Answer.Peer != asked.Answer.Peer ||
		len(told.Answer.Via) != 1 {
		t.Errorf("%+v, after %+v", told.Answer, asked.Answer)
	}
}

func TestUncapturedTrafficIsAFailure(t *testing.T) {
	w := newWorld(t, false)
	w.get(w.Pod, netip.AddrPortFrom(w.NeighbourIP4, 8080))
	c := w.command("pod", nil, "get", "-captured", fmt.Sprintf("http://%s:8080/", w.NeighbourIP4))
	c.WaitDelay = time.Second
	if err := w.Pod.Do(c.Run); c.ProcessState.ExitCode() != 1 {
		t.Errorf("%v", err)
	}
}
