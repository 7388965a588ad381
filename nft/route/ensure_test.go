package route_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// The lines that [state] returns for the parts of the routing in the variable everything.
var (
	state4 = []string{
		"-4 rule 133 from all fwmark 0x539 lookup 133",
		"-4 route local default dev lo table 133",
	}
	state6 = []string{
		"-6 rule 133 from all fwmark 0x539 lookup 133",
		"-6 route local default dev lo table 133",
	}
	statePassthrough = []string{"::6"}
)

// maskedPolicy has a policy rule that compares only some bits of the mark, as in ambient mode.
var maskedPolicy = rules.Routing{Policies: []rules.PolicyRoute{{
	Family: rules.IPv4, Mark: 0x111, Mask: 0xfff, Table: 100, Priority: 133,
}}}

func TestEnsureAddsMissingObjects(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []string
		want   rules.Routing
		after  []string
		undone []string // the state after Undo
	}{
		{"all routing, in a new namespace", nil, everything, join(state4, state6, statePassthrough), nil},
		{"IPv4 only", nil, onlyIPv4, state4, nil},
		{"::6 only", nil, onlyPassthrough, statePassthrough, nil},
		{
			"a table above 255 and a mark of 32 bits", nil,
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv6, Mark: 1<<32 - 1, Table: 70000, Priority: 133,
			}}},
			[]string{
				"-6 rule 133 from all fwmark 0xffffffff lookup 70000",
				"-6 route local default dev lo table 70000",
			},
			nil,
		},
		{
			"a mark with a mask", nil, maskedPolicy,
			[]string{
				"-4 rule 133 from all fwmark 0x111/0xfff lookup 100",
				"-4 route local default dev lo table 100",
			},
			nil,
		},
		{
			"a rule of Sluice without its route",
			[]string{"-4 rule add pref 133 fwmark 1337 lookup 133"},
			onlyIPv4, state4, state4[:1],
		},
		{
			"a route of Sluice without its rule",
			[]string{istioRoute4, istioRoute6},
			everything,
			join(state4, state6, statePassthrough),
			[]string{state4[1], state6[1]},
		},
		{
			"a rule of Istio is not Sluice's",
			[]string{istioRule4, istioRoute4},
			onlyIPv4,
			join(state4[:1], []string{"-4 rule 32765 from all fwmark 0x539 lookup 133"},
				state4[1:]),
			[]string{"-4 rule 32765 from all fwmark 0x539 lookup 133", state4[1]},
		},
		{"an address of Istio is kept", []string{istioPassthrough}, onlyPassthrough, statePassthrough, statePassthrough},
		{
			"a rule of Sluice with another mask is kept",
			[]string{"-4 rule add pref 133 fwmark 1337/0xfff lookup 133"},
			onlyIPv4,
			join(state4[:1], []string{"-4 rule 133 from all fwmark 0x539/0xfff lookup 133"},
				state4[1:]),
			[]string{"-4 rule 133 from all fwmark 0x539/0xfff lookup 133"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			change := mustEnsure(t, n, tc.want)
			if want := len(tc.after) - len(tc.undone); change.Len() != want ||
				change.Empty() != (want == 0) {
				t.Errorf("added %d objects, want %d; Empty returns %t", change.Len(), want,
					change.Empty())
			}
			checkState(t, n, tc.after...)
			if second := mustEnsure(t, n, tc.want); !second.Empty() {
				t.Error("a second Ensure added objects, want none")
			}
			checkState(t, n, tc.after...)
			for range 2 {
				if err := change.Undo(); err != nil {
					t.Fatal(err)
				}
				checkState(t, n, tc.undone...)
			}
		})
	}
}

func TestEnsureTakesEffect(t *testing.T) {
	for _, tc := range []struct {
		name string
		n    *netns.NS
	}{
		{"in a namespace", netnstest.New(t)},
		{"in a namespace of another user namespace", netnstest.NewInUserNS(t)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustEnsure(t, tc.n, everything)
			for _, dst := range []string{"192.0.2.1", "2001:db8::1"} {
				got := strings.Join(ip(t, tc.n, "route get "+dst+" mark 1337"), " ")
				if !strings.HasPrefix(got, "local "+dst) ||
					!strings.Contains(got, "dev lo table 133") {
					t.Errorf("the route of a packet with the mark to %s is %q, want a local route", dst,
						got)
				}
			}
		})
	}
}

func TestPassthroughCanBeBoundImmediately(t *testing.T) {
	for range 20 {
		n := netnstest.New(t)
		mustEnsure(t, n, onlyPassthrough)
		err := n.Do(func() error {
			l, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: rules.PassthroughIPv6().AsSlice()})
			if err != nil {
				return err
			}
			return l.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		// Check the flag too, because without the flag the bind above can succeed by chance.
		if got := ip(t, n, "-6 -oneline address show dev lo to ::6"); !strings.Contains(got[0],
			"nodad") {
			t.Fatalf("address %q, want the flag nodad", got)
		}
	}
}

func TestUndoOfNothingOpensNoSocket(t *testing.T) {
	n := netnstest.New(t)
	mustEnsure(t, n, onlyPassthrough)
	unchanged := mustEnsure(t, n, onlyPassthrough)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unchanged.Undo(); err != nil {
		t.Errorf("Undo in a closed namespace: %v", err)
	}
	// A closed namespace must not be treated as the current namespace.
	if _, err := route.Ensure(n, onlyPassthrough); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Ensure in a closed namespace: error %v, want os.ErrClosed", err)
	}
}

func TestNilIsTheCurrentNamespace(t *testing.T) {
	n := netnstest.New(t)
	var change route.Change
	err := n.Do(func() error {
		change = mustEnsure(t, nil, onlyIPv4)
		checkRead(t, nil, onlyIPv4)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkState(t, n, state4...)
	if err := n.Do(change.Undo); err != nil {
		t.Fatal(err)
	}
	checkState(t, n)
}

func TestOnlyIPv6PolicyRoutesNeedLoopbackUp(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "link set lo down")
	mustEnsure(t, n, rules.Routing{Policies: onlyIPv4.Policies, LoopbackAddrs: passthroughAddrs})
	checkState(t, n, join(state4, statePassthrough)...)
	if got := ip(t, n, "-brief link show lo"); strings.Contains(got[0], "UP") {
		t.Errorf("link %q is up, want Ensure to leave it down", got)
	}
	_, err := route.Ensure(n, everything)
	checkError(t, err, unix.ENETDOWN,
		`add route "ip -6 route local default dev lo table 133": lo is down: `)
	checkState(t, n, join(state4, statePassthrough)...)
}

func TestEnsureFindsARenamedLoopbackInterface(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "link set lo down", "link set lo name loop0", "link set loop0 up")
	mustEnsure(t, n, everything)
	checkRead(t, n, everything)
}

func TestFailedEnsureChangesNothing(t *testing.T) {
	for _, tc := range []struct {
		name      string
		before    []string
		sysctl    string
		want      rules.Routing
		wantErr   error
		wantText  string
		remaining []string
	}{
		{
			"IPv6 is disabled on all interfaces, ::6 is wanted", nil, "ipv6/conf/all/disable_ipv6",
			onlyPassthrough, route.ErrNoIPv6,
			`add address "ip -6 address ::6 dev lo": the namespace has no IPv6: sysctl net.ipv6.conf.lo.disable_ipv6 is 1: permission denied`, nil,
		},
		{
			"IPv6 is disabled on lo, ::6 is wanted", nil, "ipv6/conf/lo/disable_ipv6", onlyPassthrough,
			route.ErrNoIPv6, "has no IPv6", nil,
		},
		{
			"IPv6 is disabled, everything is wanted", nil, "ipv6/conf/all/disable_ipv6", everything,
			route.ErrNoIPv6,
			`add route "ip -6 route local default dev lo table 133": the namespace has no IPv6`,
			nil,
		},
		{
			"the IPv4 table has another default route",
			[]string{"-4 route add unreachable default table 133"},
			"", onlyIPv4, nil,
			`add route "ip -4 route local default dev lo table 133": the table has another default route`,
			[]string{"-4 route unreachable default table 133"},
		},
		{
			"the IPv6 table has another default route",
			[]string{"-6 route add unreachable default metric 1024 table 133"},
			"", everything, nil,
			`add route "ip -6 route local default dev lo table 133": the table has another default route`,
			[]string{"-6 route unreachable default dev lo table 133"},
		},
		{
			"an invalid policy route", nil, "",
			rules.Routing{Policies: []rules.PolicyRoute{
				{Family: rules.Inet, Mark: 1, Table: 1, Priority: 133},
				{Family: rules.IPv4, Mark: 1, Table: 1, Priority: 134},
			}},
			nil, "must be IPv4 or IPv6\n" +
				`policy rule "ip -4 rule priority 134 fwmark 0x1 lookup 1": the priority must be 133`, nil,
		},
		{
			"the mark is 0", nil, "",
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv4, Table: 1, Priority: 133,
			}}},
			nil, "the mark must not be 0", nil,
		},
		{
			"the mark has bits outside the mask", nil, "",
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv4, Mark: 0x1111, Mask: 0xfff, Table: 1, Priority: 133,
			}}},
			nil, "the mark must have no bits outside the mask", nil,
		},
		{
			"the mask has all bits", nil, "",
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv4, Mark: 1, Mask: 1<<32 - 1, Table: 1, Priority: 133,
			}}},
			nil, "the mask must not be 0xffffffff", nil,
		},
		{
			"the table is 0", nil, "",
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv4, Mark: 1, Priority: 133,
			}}},
			nil, "the kernel reserves", nil,
		},
		{
			"the table is main", nil, "",
			rules.Routing{Policies: []rules.PolicyRoute{{
				Family: rules.IPv4, Mark: 1, Table: 254, Priority: 133,
			}}},
			nil, "the kernel reserves", nil,
		},
		{
			"another address of lo", nil, "",
			rules.Routing{LoopbackAddrs: append(passthroughAddrs[:1:1], rules.PassthroughIPv4())},
			nil, "address 127.0.0.6 dev lo: must be ::6", nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			if tc.sysctl != "" {
				enableSysctl(t, n, tc.sysctl)
			}
			change, err := route.Ensure(n, tc.want)
			checkError(t, err, tc.wantErr, tc.wantText)
			if !change.Empty() {
				t.Error("the change is not empty after an error")
			}
			checkState(t, n, tc.remaining...)
		})
	}
}

func TestIPv4RoutingNeedsNoIPv6(t *testing.T) {
	n := netnstest.New(t)
	enableSysctl(t, n, "ipv6/conf/all/disable_ipv6")
	mustEnsure(t, n, onlyIPv4)
	checkRead(t, n, onlyIPv4)
	if removed, err := route.Prune(n, nothing); removed != 2 || err != nil {
		t.Errorf("pruned %d objects, error %v, want 2", removed, err)
	}
}

func TestErrorsWithoutCapabilityNameTheObject(t *testing.T) {
	n := netnstest.New(t)
	mustEnsure(t, n, onlyPassthrough)
	err := n.Do(func() error {
		return withoutNetAdmin(t, func() error {
			_, err := route.Ensure(nil, onlyIPv4)
			return err
		})
	})
	checkError(t, err, unix.EPERM,
		`add policy rule "ip -4 rule priority 133 fwmark 0x539 lookup 133": operation not permitted`)
	err = n.Do(func() error {
		return withoutNetAdmin(t, func() error { _, err := route.Prune(nil, nothing); return err })
	})
	checkError(t, err, unix.EPERM,
		`remove address "ip -6 address ::6 dev lo": operation not permitted`)
}

// withoutNetAdmin runs fn while the calling thread, which must be locked, lacks CAP_NET_ADMIN.
func withoutNetAdmin(t *testing.T, fn func() error) error {
	t.Helper()
	defer dropNetAdmin(t)()
	return fn()
}

// dropNetAdmin drops CAP_NET_ADMIN of the calling thread, which must be locked, until restore is
// called.
func dropNetAdmin(t *testing.T) (restore func()) {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&hdr, &all[0]); err != nil {
		t.Fatal(err)
	}
	less := all
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&hdr, &less[0]); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Capset(&hdr, &all[0]); err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentEnsureAddsOnce(t *testing.T) {
	const callers = 4
	for range 15 {
		n := netnstest.New(t)
		var wg sync.WaitGroup
		start := make(chan struct{})
		changes := make([]route.Change, callers)
		for i := range callers {
			wg.Go(func() {
				<-start
				var err error
				if changes[i], err = route.Ensure(n, everything); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		checkState(t, n, join(state4, state6, statePassthrough)...)
		added := 0
		for _, change := range changes {
			added += change.Len()
			if err := change.Undo(); err != nil {
				t.Error(err)
			}
		}
		if added != 5 {
			t.Errorf("the callers added %d objects, want 5", added)
		}
		checkState(t, n)
	}
}

func TestNoDescriptorLeaks(t *testing.T) {
	n := netnstest.New(t)
	disabled := netnstest.New(t)
	enableSysctl(t, disabled, "ipv6/conf/all/disable_ipv6")
	before := netnstest.Descriptors(t)
	for range 300 {
		change := mustEnsure(t, n, everything)
		if err := change.Undo(); err != nil {
			t.Fatal(err)
		}
		mustEnsure(t, n, everything)
		if _, err := route.Read(n); err != nil {
			t.Fatal(err)
		}
		if _, err := route.Addresses(n); err != nil {
			t.Fatal(err)
		}
		if removed, err := route.Prune(n, nothing); removed != 5 || err != nil {
			t.Fatalf("pruned %d objects, error %v, want 5", removed, err)
		}
		if _, err := route.Ensure(disabled, everything); err == nil {
			t.Fatal("Ensure succeeded in a namespace without IPv6, want an error")
		}
	}
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after, want no more", before, after)
	}
}

// checkError checks that err wraps target, unless target is nil, and contains the text.
func checkError(t *testing.T, err, target error, text string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", text)
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("error %q does not wrap %q", err, target)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("error %q\ndoes not contain %q", err, text)
	}
}

func TestUndoKeepsExceptedObjects(t *testing.T) {
	n := netnstest.New(t)
	change := mustEnsure(t, n, everything)
	if err := change.Except(onlyIPv4).Undo(); err != nil {
		t.Fatal(err)
	}
	checkState(t, n, state4...)
}
