package xfrm

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// ip runs commands of ip xfrm in the namespace.
func ip(t *testing.T, ns *netns.NS, commands ...string) {
	t.Helper()
	program := netnstest.RequireBinary(t, "ip")
	for _, c := range commands {
		err := ns.Do(func() error {
			out, err := exec.Command(program, append([]string{"xfrm"}, strings.Fields(c)...)...).CombinedOutput()
			if err != nil {
				t.Errorf("ip xfrm %s: %s", c, out)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrops(t *testing.T) {
	const esp = "tmpl src 10.0.0.7 dst 10.0.0.8 proto esp"
	for _, row := range []struct {
		name     string
		commands []string
		want     []string // the policies and reasons
	}{
		{"none", nil, nil},
		{
			"a policy that blocks packets",
			[]string{"policy add src 0.0.0.0/0 dst 10.9.9.9/32 proto tcp dir out action block priority 7"},
			[]string{"ip xfrm policy src 0.0.0.0/0 dst 10.9.9.9/32 proto tcp dir out action block priority 7: it blocks them"},
		},
		{
			"a policy without its state",
			[]string{"policy add src ::/0 dst fd00::/16 dir out tmpl src fd01::1 dst fd01::2 proto esp mode tunnel"},
			[]string{"ip xfrm policy src ::/0 dst fd00::/16 dir out priority 0: it requires IPsec, and no state for it exists"},
		},
		{
			"a policy for incoming packets",
			[]string{"policy add src 10.0.0.0/8 dst 10.0.0.7/32 dir in " + esp},
			[]string{"ip xfrm policy src 10.0.0.0/8 dst 10.0.0.7/32 dir in priority 0: it requires IPsec, which packets of the mesh do not have"},
		},
		{
			"default policies",
			[]string{"policy setdefault in block out accept"},
			[]string{
				"ip xfrm policy default in block: no other policy allows them",
				"ip xfrm policy default in block: no other policy allows them",
			},
		},
		{
			"policies without effect on the packets of sockets",
			[]string{
				"policy add src 0.0.0.0/0 dst 10.9.9.9/32 dir fwd action block",
				"policy add src 0.0.0.0/0 dst 10.9.9.10/32 dir out",
				"policy add src 0.0.0.0/0 dst 10.9.9.11/32 dir out action block mark 5 mask 0xff",
				"policy add src 0.0.0.0/0 dst 10.9.9.12/32 dir out action block if_id 7",
				"policy add src 0.0.0.0/0 dst 10.9.9.13/32 dir in " + esp + " level use",
				"policy add src 0.0.0.0/0 dst 127.0.0.1/32 dir out action block",
			},
			nil,
		},
		{
			"a policy that another one precedes",
			[]string{
				"policy add src 0.0.0.0/0 dst 10.9.0.0/16 dir out priority 1",
				"policy add src 0.0.0.0/0 dst 10.9.9.0/24 dir out action block priority 2",
				"policy add src 0.0.0.0/0 dst 10.0.0.0/8 dir out action block priority 3",
				"policy add src 0.0.0.0/0 dst 10.9.8.0/24 dir out action block priority 0",
			},
			[]string{
				"ip xfrm policy src 0.0.0.0/0 dst 10.9.8.0/24 dir out action block priority 0: it blocks them",
				"ip xfrm policy src 0.0.0.0/0 dst 10.0.0.0/8 dir out action block priority 3: it blocks them",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			ns := netnstest.New(t)
			ip(t, ns, row.commands...)
			drops, err := Drops(ns)
			var got []string
			for _, d := range drops {
				got = append(got, d.Text+": "+d.Reason)
			}
			if err != nil || !slices.Equal(got, row.want) {
				t.Errorf("got\n%s\nerror %v, want\n%s", strings.Join(got, "\n"), err, strings.Join(row.want, "\n"))
			}
		})
	}
}

func TestTooManyPolicies(t *testing.T) {
	ns := netnstest.New(t)
	ip(t, ns, "policy add src 0.0.0.0/0 dst 10.9.9.9/32 dir out", "policy add src 0.0.0.0/0 dst 10.9.9.8/32 dir out")
	defer func(n int) { maxObjects = n }(maxObjects)
	maxObjects = 1
	if _, err := Drops(ns); err == nil || err.Error() != "list the xfrm policies: the namespace has more than 1" {
		t.Errorf("error %v, want the limit", err)
	}
}

// TestStates compares states with the template of a policy for outgoing packets. It encodes the
// states itself, because the kernel of the test may not support the protocols of states.
func TestStates(t *testing.T) {
	const ah = 51
	to := netip.MustParseAddr("10.0.0.8")
	policy := policy{direction: directionOut, templates: []template{{
		destination: to, protocol: ah, mode: 1, reqID: 5,
	}}}
	for name, row := range map[string]struct {
		change func(*nl.XfrmUsersaInfo)
		isUsed bool
	}{
		"a state":                    {func(*nl.XfrmUsersaInfo) {}, true},
		"an acquired state":          {func(i *nl.XfrmUsersaInfo) { i.Id.Spi = 0 }, false},
		"a state of another request": {func(i *nl.XfrmUsersaInfo) { i.Reqid = 6 }, false},
		"another mode":               {func(i *nl.XfrmUsersaInfo) { i.Mode = 0 }, false},
		"another protocol":           {func(i *nl.XfrmUsersaInfo) { i.Id.Proto = 50 }, false},
		"another peer": {
			func(i *nl.XfrmUsersaInfo) { i.Id.Daddr.FromIP(net.IPv4(10, 0, 0, 9)) }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			info := nl.XfrmUsersaInfo{Reqid: 5, Mode: 1, Family: 2}
			info.Id.Daddr.FromIP(to.AsSlice())
			info.Id.Proto, info.Id.Spi = ah, 9
			row.change(&info)
			s, err := decodeState(info.Serialize())
			if err != nil || (policy.dropReason([]state{s}) == "") != row.isUsed {
				t.Errorf("state %+v, error %v: %q; want a usable state: %t", s, err, policy.dropReason([]state{s}), row.isUsed)
			}
		})
	}
}
