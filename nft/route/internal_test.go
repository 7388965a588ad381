package route

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestDumpIsRepeatedWhenInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name        string
		interrupted int   // number of interrupted calls
		err         error // of the call after them
		want        []int
		wantErr     error
		calls       int
	}{
		{"never interrupted", 0, nil, []int{1, 2}, nil, 1},
		{"interrupted twice", 2, nil, []int{1, 2}, nil, 3},
		{"always interrupted", 1000, nil, nil, netlink.ErrDumpInterrupted, dump.Attempts},
		{"interrupted, then refused", 1, unix.EPERM, nil, unix.EPERM, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			got, err := listAll("numbers", func() ([]int, error) {
				if calls++; calls <= tc.interrupted {
					return []int{1}, netlink.ErrDumpInterrupted
				}
				return []int{1, 2}, tc.err
			})
			if !slices.Equal(got, tc.want) || !errors.Is(err, tc.wantErr) || calls != tc.calls {
				t.Errorf("got %v, error %v after %d calls, want %v, error %v after %d", got, err, calls,
					tc.want, tc.wantErr, tc.calls)
			}
		})
	}
}

// FuzzFastCheck checks that any answer can be decoded, that a rule is found only in an answer with
// its mark, and a route only in an answer that is long enough for a route.
func FuzzFastCheck(f *testing.F) {
	want := rules.PolicyRoute{
		Family: rules.IPv4, Mark: 1337, Table: 133, Priority: rules.PolicyPriority,
	}
	for _, answer := range []string{
		// The wanted policy rule, and the end of the dump.
		"3c0000002000020001000000000000000200000000000001000000000800060085000000080010003905000008000f0085000000",
		"14000000030002000100000000000000" + "00000000",
		// ::6 does not exist.
		"240000000200000001000000000000009dffffff2c00000016000100010000000000000000",
	} {
		data, err := hex.DecodeString(answer)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q := fastCheck{
			want: rules.Routing{Policies: []rules.PolicyRoute{want}}, hasRule: make([]bool, 1),
			currentPolicy: want,
		}
		_, _ = nlmsg.Each(data, func(m nlmsg.Message) (bool, error) { return false, q.checkMessage(m) })
		mark := native.AppendUint32(nil, want.Mark)
		if q.hasRule[0] && !bytes.Contains(data, mark) {
			t.Errorf("found a rule without its mark in %x", data)
		}
		if q.hasRoute && len(data) < unix.NLMSG_HDRLEN+unix.SizeofRtMsg {
			t.Errorf("found a route in %x, which is too short for a route", data)
		}
	})
}

// TestMessagesOfOtherProcessesAreRefused covers a process of the pod that sends messages to the
// socket of a fast check.
func TestMessagesOfOtherProcessesAreRefused(t *testing.T) {
	err := netnstest.New(t).Do(func() error {
		q, err := newFastCheck(rules.Routing{})
		if err != nil {
			return err
		}
		defer q.close()
		own, err := unix.Getsockname(q.fd)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		err = unix.Sendto(fd, make([]byte, unix.NLMSG_HDRLEN), 0, &unix.SockaddrNetlink{
			Family: unix.AF_NETLINK, Pid: own.(*unix.SockaddrNetlink).Pid,
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a message of another process: error %v, want %v", err, unix.ECONNREFUSED)
		}
		if q.query() != nil || q.checkComplete() != nil {
			t.Error("the fast check failed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOnlyErrorsOfMissingIPv6AreErrNoIPv6(t *testing.T) {
	for _, tc := range []struct {
		name   string
		family rules.Family
		err    error
		noIPv6 bool
	}{
		{"policy rules on a kernel without IPv6", rules.IPv6, unix.EAFNOSUPPORT, true},
		{"addresses and routes on a kernel without IPv6", rules.IPv6, unix.EOPNOTSUPP, true},
		{"a kernel without policy rules", rules.IPv4, unix.EAFNOSUPPORT, false},
		{"a refusal by a security module, with IPv6 enabled", rules.IPv6, unix.EACCES, false},
		{"a missing capability", rules.IPv6, unix.EPERM, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := explainError(nil, localRoute{tc.family, 133}, tc.err)
			if !errors.Is(err, tc.err) || errors.Is(err, ErrNoIPv6) != tc.noIPv6 {
				t.Errorf("error %q, want %q, with ErrNoIPv6: %t", err, tc.err, tc.noIPv6)
			}
		})
	}
}

// TestFormatRouteContainsTheNumberOfAnUnknownType covers types of routes that later kernels may
// add.
func TestFormatRouteContainsTheNumberOfAnUnknownType(t *testing.T) {
	got := foundRoute{
		family: rules.IPv4, table: 133, kind: 200, nextHop: nextHop{device: netns.LoopbackIndex},
	}.String()
	if want := "ip -4 route 200 default dev lo table 133"; got != want {
		t.Errorf("route text %q, want %q", got, want)
	}
}

// setLimits sets maxObjects and maxRoutes until the test ends.
func setLimits(t *testing.T, objects, routes int) {
	oldObjects, oldRoutes := maxObjects, maxRoutes
	t.Cleanup(func() { maxObjects, maxRoutes = oldObjects, oldRoutes })
	maxObjects, maxRoutes = objects, routes
}

// TestNumberOfObjectsIsLimited verifies that a process of the pod cannot exhaust the time and the
// memory of the reader.
func TestNumberOfObjectsIsLimited(t *testing.T) {
	overLoopback := func(ns *netns.NS) error { _, err := OverLoopback(ns); return err }
	read := func(ns *netns.NS) error { _, err := Read(ns); return err }
	ensure := func(ns *netns.NS) error {
		_, err := Ensure(ns, rules.Routing{LoopbackAddrs: []netip.Addr{rules.PassthroughIPv6()}})
		return err
	}
	addresses := func(ns *netns.NS) error { _, err := Addresses(ns); return err }
	listRules := func(ns *netns.NS) error { _, err := Rules(ns); return err }
	listRoutes := func(ns *netns.NS) error { _, err := Routes(ns, deviceName); return err }
	listAddresses := func(ns *netns.NS) error { _, err := InterfaceAddresses(ns); return err }
	// hidden lists routes whose next hops the kernel reports only with their nexthop objects.
	hidden := func(ns *netns.NS) error {
		if err := ns.Do(func() error {
			const compatibility = "/proc/sys/net/ipv4/nexthop_compat_mode"
			if err := os.WriteFile(compatibility, []byte("0"), 0); err != nil {
				return err
			}
			for _, command := range []string{
				"nexthop add id 1 dev lo", "nexthop add id 2 dev lo", "nexthop add id 3 group 1/2",
				"route add 10.3.0.0/16 nhid 1",
			} {
				if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
					return fmt.Errorf("%s: %s", command, out)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		_, err := listNextHops(ns)
		return err
	}
	for _, tc := range []struct {
		name            string
		objects, routes int
		call            func(*netns.NS) error
		want            string
	}{
		{"policy rules", 11, 1 << 20, read, "more than 11 policy rules"},
		{"policy rules, without a need to read", 11, 1 << 20, ensure, "more than 11 policy rules"},
		{"routes in a table", 20, 1 << 20, read, "more than 20 routes in table 133"},
		{"all routes", 100, 20, overLoopback, "more than 20 routes"},
		{"addresses", 30, 1 << 20, addresses, "more than 30 addresses"},
		{"a list of policy rules", 11, 1 << 20, listRules, "more than 11 policy rules"},
		{"a list of routes", 20, 1 << 20, listRoutes, "more than 20 routes outside the tables main, local and default"},
		{"a list of all routes", 100, 20, listRoutes, "more than 20 routes"},
		{"a list of addresses", 30, 1 << 20, listAddresses, "more than 30 addresses"},
		{"nexthop objects", 4, 1 << 20, hidden, "more than 4 nexthop objects"},
		{"below the limits", 100, 100, read, ""},
		{"below the limits, with nexthop objects", 100, 100, hidden, ""},
		{"below the limits, over lo", 100, 100, overLoopback, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			h, err := ns.Netlink(unix.NETLINK_ROUTE)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			lo, err := h.LinkByIndex(netns.LoopbackIndex)
			if err != nil {
				t.Fatal(err)
			}
			errs := []error{h.LinkSetUp(lo)}
			for i := range 10 {
				p := rules.PolicyRoute{
					Family: rules.IPv4, Mark: uint32(i + 1), Table: 133, Priority: rules.PolicyPriority,
				}
				errs = append(errs, policyRule(p).add(h, conn{}))
			}
			for i := range 32 {
				errs = append(errs, h.RouteAdd(&netlink.Route{
					LinkIndex: netns.LoopbackIndex, Table: 133,
					Dst: &net.IPNet{IP: net.IPv4(10, 1, 1, byte(i)).To4(), Mask: net.CIDRMask(32, 32)},
				}), h.AddrAdd(lo, loopbackAddr(netip.AddrFrom4([4]byte{10, 2, 1, byte(i)})).kernel()))
			}
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			setLimits(t, tc.objects, tc.routes)
			err = tc.call(ns)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
		})
	}
}

// listNextHops returns the nexthop objects of the namespace.
func listNextHops(ns *netns.NS) (map[uint32]nextHopObject, error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.readNextHops()
}

// TestRoutesOfAllTablesOfAReaderAreLimited verifies that the limit applies to all tables together,
// because the reader keeps their routes.
func TestRoutesOfAllTablesOfAReaderAreLimited(t *testing.T) {
	ns := netnstest.New(t)
	r, err := openReader(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for table := 133; table <= 134; table++ {
		for i := range 30 {
			if err := h.RouteAdd(&netlink.Route{
				LinkIndex: netns.LoopbackIndex, Table: table,
				Dst: &net.IPNet{IP: net.IPv4(10, 1, 1, byte(i)).To4(), Mask: net.CIDRMask(32, 32)},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	setLimits(t, 40, 100)
	if _, err := r.table(localRoute{rules.IPv4, 133}); err != nil {
		t.Error(err)
	}
	_, err = r.table(localRoute{rules.IPv4, 134})
	if err == nil || !strings.Contains(err.Error(), "more than 40 routes in the tables of policy rules") {
		t.Errorf("error %v, want the limit of routes", err)
	}
}

// TestEachTableIsListedOnce reads many policy rules that look up one table.
func TestEachTableIsListedOnce(t *testing.T) {
	own := localRoute{rules.IPv4, 133}
	r := &reader{tables: map[localRoute]table{own: {hasRoute: true}}} // without a socket
	for i := range 100 {
		r.policyRules = append(r.policyRules, foundRule{policy: rules.PolicyRoute{
			Family: rules.IPv4, Mark: uint32(i + 1), Table: 133, Priority: rules.PolicyPriority,
		}, isPlain: true})
	}
	found, err := r.routing(foundRule.isOwned)
	if err != nil || len(found.Policies) != 100 {
		t.Errorf("found %d policy routes, error %v; want 100", len(found.Policies), err)
	}
	if err := r.addUnroutedAndForeign(&found); err != nil || len(found.Unrouted) > 0 {
		t.Errorf("%d rules without a route, error %v; want none", len(found.Unrouted), err)
	}
}

// TestFailedEnsureRemovesTheAddressOfTheFastPath covers a failure after the fast path has added
// ::6. The unwanted rule makes Ensure take the slow path, which fails because of the limit of
// rules.
func TestFailedEnsureRemovesTheAddressOfTheFastPath(t *testing.T) {
	ns := netnstest.New(t)
	err := ns.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		unwanted := policyRule{Family: rules.IPv4, Mark: 1, Table: 133, Priority: rules.PolicyPriority}
		if err := unwanted.add(h, conn{}); err != nil {
			return err
		}
		setLimits(t, 1, 1)
		_, err = Ensure(nil, rules.Routing{LoopbackAddrs: []netip.Addr{rules.PassthroughIPv6()}})
		if err == nil || !strings.Contains(err.Error(), "more than 1 policy rules") {
			t.Errorf("error %v, want the limit of policy rules", err)
		}
		setLimits(t, 100, 100)
		r, err := openReader(nil)
		if err != nil {
			return err
		}
		defer r.close()
		if r.hasPassthrough {
			t.Error("the address of the fast path remains")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOnlySomeErrorsMeanThatPacketsAreDropped(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ENETUNREACH: true, unix.EACCES: true, unix.EOPNOTSUPP: true,
		fmt.Errorf("route: %w", unix.EHOSTUNREACH): true,
		unix.ENOBUFS: false, unix.EINTR: false, errors.New("other"): false,
	} {
		if got := isUnroutable(err); got != want {
			t.Errorf("isUnroutable(%v) = %t, want %t", err, got, want)
		}
	}
}

// TestFailedEnsureRemovesItsPolicyRule covers the removal of a rule from a namespace with more
// rules than the limit.
func TestFailedEnsureRemovesItsPolicyRule(t *testing.T) {
	ns := netnstest.New(t)
	setLimits(t, 1, 1)
	const limit = "list policy rules: the namespace has more than 1 policy rules"
	if _, err := Ensure(ns, rules.Routing{Policies: []rules.PolicyRoute{{
		Family: rules.IPv4, Mark: 1337, Table: 133, Priority: rules.PolicyPriority,
	}}}); err == nil || err.Error() != limit {
		t.Errorf("error %v, want %s", err, limit)
	}
	setLimits(t, 100, 100)
	if found, err := Find(ns, rules.Routing{}); len(found) > 0 || err != nil {
		t.Errorf("remaining objects %q, error %v, want none", found, err)
	}
}

// TestOnlyTheEqualRulesBeforeAForeignOneAreRemoved covers a foreign rule between two equal rules.
func TestOnlyTheEqualRulesBeforeAForeignOneAreRemoved(t *testing.T) {
	ns := netnstest.New(t)
	r, h, err := openForChanges(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	defer h.Close()
	own := policyRule{Family: rules.IPv4, Mark: 1337, Table: 133, Priority: rules.PolicyPriority}
	foreign := own.kernel()
	foreign.IifName = "lo"
	if err := errors.Join(own.addBeside(r.conn), h.RuleAdd(foreign), own.addBeside(r.conn)); err != nil {
		t.Fatal(err)
	}
	removed, err := Prune(ns, rules.Routing{})
	if removed != 1 || err == nil || !strings.Contains(err.Error(), "iif lo") {
		t.Errorf("removed %d rules, error %v; want 1 and the rule with iif lo", removed, err)
	}
	if err := r.readPolicyRules(); err != nil {
		t.Fatal(err)
	}
	isForeign := func(f foundRule) bool { return f.policy == rules.PolicyRoute(own) && !f.isPlain }
	if !slices.ContainsFunc(r.policyRules, isForeign) {
		t.Error("the foreign rule was removed")
	}
}
