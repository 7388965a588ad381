package compat_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A cgroup is a version 2 cgroup that a test creates.
type cgroup struct {
	dir string
	rules.MatchCgroup
}

// newCgroups creates cgroups in a parent cgroup of this test.
func newCgroups(t testing.TB, names ...string) []cgroup {
	t.Helper()
	parent := fmt.Sprintf("sluice-test-%d", os.Getpid())
	netnstest.NewCgroup(t, parent)
	var made []cgroup
	for _, name := range names {
		dir, m := netnstest.NewCgroup(t, filepath.Join(parent, name))
		made = append(made, cgroup{dir, m})
	}
	return made
}

// dial is the role of a process that connects to the address on stdin and prints the answer.
func dial(_ *netns.NS, stdin *bufio.Reader) error {
	to, err := stdin.ReadString('\n')
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", strings.TrimSpace(to), 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := io.ReadAll(c)
	fmt.Print(string(answer))
	return err
}

// dialFrom runs dial in a namespace and a cgroup as a user, and returns the answer.
func dialFrom(t testing.TB, ns *netns.NS, in cgroup, uid uint32, to string) string {
	t.Helper()
	dir, err := os.Open(in.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=dial")
	cmd.Stdin = strings.NewReader(to + "\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(dir.Fd()),
		Credential: &syscall.Credential{Uid: uid, Gid: uid},
	}
	var out []byte
	if err := ns.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		t.Fatalf("%s: %v: %s", to, err, out)
	}
	return string(out)
}

// serveAnswer serves a port of the namespace: it sends name and the caller's address.
func serveAnswer(t testing.TB, ns *netns.NS, name, port string) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", ":"+port)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			caller, _ := netip.ParseAddrPort(c.RemoteAddr().String())
			fmt.Fprintf(c, "%s from %s", name, caller.Addr().Unmap())
			_ = c.Close()
		}
	}()
}

// On a node with an ambient pod, the kubelet's connections reach the application, and the
// connections of other processes of the node reach ztunnel, for every user.
func TestOnlyProbesOfTheKubeletBypassZtunnel(t *testing.T) {
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			cgroups := newCgroups(t, "kubelet", "kubelet/below", "kubelet-other")
			kubelet, below, other := cgroups[0], cgroups[1], cgroups[2]
			bed, err := testbed.New(testbed.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { bed.Close() })
			node := bed.Neighbor
			serveAnswer(t, bed.Pod, "application", "8080")
			serveAnswer(t, bed.Pod, "ztunnel", "15006")
			applyAndCheck(t, chosen(t, backendName), bed.Pod, ambientRuleset(t), nft.Created)

			h := rules.DefaultAmbientHost()
			h.Kubelet = kubelet.MatchCgroup
			h.Pods = []netip.Addr{testbed.PodIP4}
			applyAndCheck(t, chosen(t, backendName), node, compiledHost(t, h), nft.Created)
			const ipv4, ipv6 = "10.244.1.5:8080", "[fd00:10:244:1::5]:8080"
			want := "ztunnel from fd00:10:244:1::1"
			if got := dialFrom(t, node, kubelet, 0, ipv6); got != want {
				t.Errorf("a probe to an address that the rules do not list: %s, want %s", got, want)
			}
			h.Pods = append(h.Pods, testbed.PodIP6)
			rs := compiledHost(t, h)
			applyAndCheck(t, chosen(t, backendName), node, rs, nft.Replaced)
			applyAndCheck(t, chosen(t, backendName), node, rs, nft.Unchanged)
			wantEquivalentInKernel(t, node, rs)
			for _, tc := range []struct {
				name     string
				in       cgroup
				uid      uint32
				to, want string
			}{
				{"a probe", kubelet, 0, ipv4, "application from 169.254.7.127"},
				{
					"a probe over IPv6", kubelet, 0, ipv6,
					"application from fd16:9254:7127:1337:ffff:ffff:ffff:ffff",
				},
				{"a kubelet with another user", kubelet, 1000, ipv4, "application from 169.254.7.127"},
				{"a process in a cgroup below the kubelet's", below, 0, ipv4, "application from 169.254.7.127"},
				{"a process of root in another cgroup", other, 0, ipv4, "ztunnel from 10.244.1.1"},
				{"a process of root in another cgroup, over IPv6", other, 0, ipv6, "ztunnel from fd00:10:244:1::1"},
				{"a process of a user in another cgroup", other, 1000, ipv4, "ztunnel from 10.244.1.1"},
			} {
				if got := dialFrom(t, node, tc.in, tc.uid, tc.to); got != tc.want {
					t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
				}
			}
			if removed, err := chosen(t, backendName).Remove(node); err != nil || !removed {
				t.Fatalf("Remove: %t, error %v; want true", removed, err)
			}
			want = "ztunnel from 10.244.1.1"
			if got := dialFrom(t, node, kubelet, 0, ipv4); got != want {
				t.Errorf("a probe without rules: %s, want %s", got, want)
			}
		})
	}
}

// Without version 2 cgroups, as on older nodes, the rules match the kubelet's user, as Istio's
// rules do.
func TestBackendsReadBackRulesThatMatchTheKubeletsUser(t *testing.T) {
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			node := netnstest.New(t)
			h := rules.DefaultAmbientHost()
			h.Pods, h.KubeletUID = []netip.Addr{testbed.PodIP4, testbed.PodIP6}, 1000
			rs := compiledHost(t, h)
			applyAndCheck(t, chosen(t, backendName), node, rs, nft.Created)
			applyAndCheck(t, chosen(t, backendName), node, rs, nft.Unchanged)
			wantEquivalentInKernel(t, node, rs)
		})
	}
}

// wantEquivalentInKernel verifies that the namespace has rules that are equivalent to the ruleset.
func wantEquivalentInKernel(t *testing.T, ns *netns.NS, rs rules.Ruleset) {
	t.Helper()
	live := readLive(t, ns, compat.OriginAll)
	r := diff.Decide(diff.Side{Ruleset: rs, RoutingKnown: true},
		diff.Side{Ruleset: live.Ruleset, RoutingKnown: true}, diff.Options{})
	if v := r.StrictVerdict(); v != diff.Equivalent {
		t.Errorf("the rules of the kernel are %s, want %s; classes %v, undecided %v", v,
			diff.Equivalent, r.Classes, r.Undecided)
	}
}

func compiledHost(t testing.TB, h rules.AmbientHost) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbientHost(h)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}
