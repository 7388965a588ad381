package route_test

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The routing of TPROXY, and its parts.
var (
	policy4          = rules.PolicyRoute{Family: rules.IPv4, Mark: 1337, Table: 133, Priority: 133}
	policy6          = rules.PolicyRoute{Family: rules.IPv6, Mark: 1337, Table: 133, Priority: 133}
	passthroughAddrs = []netip.Addr{rules.PassthroughIPv6()}

	nothing         rules.Routing
	onlyIPv4        = rules.Routing{Policies: []rules.PolicyRoute{policy4}}
	onlyPassthrough = rules.Routing{LoopbackAddrs: passthroughAddrs}
	everything      = rules.Routing{
		Policies: []rules.PolicyRoute{policy4, policy6}, LoopbackAddrs: passthroughAddrs,
	}
)

// Commands that add the routing of istio-iptables.
const (
	istioRule4       = "-4 rule add fwmark 1337 lookup 133"
	istioRule6       = "-6 rule add fwmark 1337 lookup 133"
	istioRoute4      = "-4 route add local default dev lo table 133"
	istioRoute6      = "-6 route add local default dev lo table 133"
	istioPassthrough = "-6 address add ::6/128 dev lo"
)

// Commands that add the rules of this package.
const (
	sluiceRule4 = "-4 rule add pref 133 fwmark 1337 lookup 133"
	sluiceRule6 = "-6 rule add pref 133 fwmark 1337 lookup 133"
)

// addEth0 contains the commands that add the interfaces eth0 (index 8) and net1 (index 9).
var addEth0 = []string{
	"link add name net1 index 9 type veth peer name eth0 index 8", "link set net1 up",
	"link set eth0 up",
}

// ip runs the ip command in n once for each line of arguments. It returns the lines of the output.
func ip(t testing.TB, n *netns.NS, lines ...string) []string {
	t.Helper()
	path := netnstest.RequireBinary(t, "ip")
	var printed []string
	for _, line := range lines {
		err := n.Do(func() error {
			out, err := exec.Command(path, strings.Fields(line)...).CombinedOutput()
			for l := range strings.Lines(string(out)) {
				printed = append(printed, strings.Join(strings.Fields(l), " "))
			}
			return err
		})
		if err != nil {
			t.Fatalf("ip %s: %v: %q", line, err, printed)
		}
	}
	return printed
}

// state returns the sorted list of all policy rules except the rules of a new namespace, of all
// routes outside the tables main and local, and of ::6 if lo has this address.
func state(t testing.TB, n *netns.NS) []string {
	t.Helper()
	var found []string
	for _, family := range []string{"-4", "-6"} {
		for _, r := range ip(t, n, family+" rule") {
			pref, text, _ := strings.Cut(r, ": ")
			if pref != "0" && pref != "32766" && pref != "32767" {
				found = append(found, family+" rule "+pref+" "+text)
			}
		}
		for _, r := range ip(t, n, family+" route show table all") {
			if table := strings.Index(r, " table "); table > 0 &&
				!strings.Contains(r, "table local") {
				text, _, _ := strings.Cut(r[table:], " proto")
				text, _, _ = strings.Cut(text, " scope")
				text, _, _ = strings.Cut(text, " metric")
				found = append(found, family+" route "+r[:table]+text)
			}
		}
	}
	for _, a := range ip(t, n, "-6 -oneline address show dev lo to ::6") {
		if strings.Contains(a, "::6/128") {
			found = append(found, "::6")
		}
	}
	slices.Sort(found)
	return found
}

// checkState checks that [state] returns want, in any order.
func checkState(t testing.TB, n *netns.NS, want ...string) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), state(t, n),
		cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("routing of the namespace (-want +got):\n%s", diff)
	}
}

// checkRead checks that Read returns want.
func checkRead(t testing.TB, n *netns.NS, want rules.Routing) {
	t.Helper()
	got, err := route.Read(n)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("result of Read (-want +got):\n%s", diff)
	}
}

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// mustEnsure calls Ensure, which must succeed.
func mustEnsure(t testing.TB, n *netns.NS, want rules.Routing) route.Change {
	t.Helper()
	change, err := route.Ensure(n, want)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

// enableSysctl writes 1 into a file under /proc/sys/net of the namespace.
func enableSysctl(t testing.TB, n *netns.NS, name string) {
	t.Helper()
	err := n.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0) })
	if err != nil {
		t.Fatal(err)
	}
}

func join(lists ...[]string) []string { return slices.Concat(lists...) }
