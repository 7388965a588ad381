package bridge

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs commands in the namespace.
func run(t *testing.T, ns *netns.NS, commands string) {
	t.Helper()
	netnstest.RequireBridgeNetfilter(t)
	if err := ns.Do(func() error {
		out, err := exec.Command("sh", "-ec", commands).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestFilteredPorts(t *testing.T) {
	netnstest.RequireBinary(t, "ip")
	const (
		bridge  = "ip link add br0 type bridge; ip link add p0 type veth peer name q0; ip link set p0 master br0\n"
		sysctls = "cd /proc/sys/net/bridge\n"
	)
	for _, row := range []struct{ name, commands, want string }{
		{"no bridge", "ip link add p0 type veth peer name q0", ""},
		{"a bridge without ports", "ip link add br0 type bridge", ""},
		{"the default of the sysctls", bridge, "port p0 of the bridge br0: IPv4 true, IPv6 true"},
		{
			"both sysctls are 0",
			sysctls + "echo 0 > bridge-nf-call-iptables; echo 0 > bridge-nf-call-ip6tables\n" + bridge, "",
		},
		{
			"one sysctl is 0", sysctls + "echo 0 > bridge-nf-call-iptables\n" + bridge,
			"port p0 of the bridge br0: IPv4 false, IPv6 true",
		},
		{
			"the option of one of two bridges",
			sysctls + "echo 0 > bridge-nf-call-iptables; echo 0 > bridge-nf-call-ip6tables\n" + bridge +
				"ip link add br1 type bridge nf_call_iptables 1; ip link add p1 type veth peer name q1; ip link set p1 master br1",
			"port p1 of the bridge br1: IPv4 true, IPv6 false",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			ns := netnstest.New(t)
			run(t, ns, row.commands)
			ports, err := FilteredPorts(ns)
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, p := range ports {
				found = append(found, fmt.Sprintf("%s: IPv4 %t, IPv6 %t", p, p.IPv4, p.IPv6))
			}
			if got := strings.Join(found, "\n"); got != row.want {
				t.Errorf("ports %q, want %q", got, row.want)
			}
		})
	}
}

func TestManyInterfacesAreAnError(t *testing.T) {
	ns := netnstest.New(t)
	run(t, ns, "ip link add p0 type veth peer name q0; ip link add p1 type veth peer name q1")
	defer func(limit int) { maxLinks = limit }(maxLinks)
	maxLinks = 2
	const want = "read the ports of bridges: the namespace has more than 2 interfaces"
	if _, err := FilteredPorts(ns); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
