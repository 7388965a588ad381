package validation

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

func newNetwork(t *testing.T, o testbed.Options) *testbed.Network {
	t.Helper()
	netnstest.RequireIDs(t, 1337+o.IDBase, 1337+o.IDBase)
	network, err := testbed.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return network
}

func runFromNeighbor(t *testing.T, network *testbed.Network, o Options) (r Result) {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, repeatTime)
	err := network.Neighbor.Do(func() (err error) {
		r, err = Run(network.Pod, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The validation also succeeds next to a running proxy, and the proxy answers all calls meanwhile.
func TestRunningProxyIsNotDisturbed(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			network := newNetwork(t, testbed.Options{})
			owner := testbed.ProxyOwner
			if mode == rules.ModeTProxy {
				owner = testbed.TProxyOwner
			}
			if err := network.StartProxy(testbed.ProxyOptions{
				Owner: owner, Transparent: mode == rules.ModeTProxy,
			}); err != nil {
				t.Fatal(err)
			}
			o := Options{Redirect: typical(mode)}
			if _, err := nft.Apply(network.Pod, rules.MustCompile(o.Redirect)); err != nil {
				t.Fatal(err)
			}
			stop := callAll(t, network)
			for range 2 {
				r := validateRepeatedly(func(timeout time.Duration) Result {
					o.Timeout = timeout
					return runFromNeighbor(t, network, o)
				}, works)
				if r.Outcome() != Works || !r.Running || r.Count(NotChecked) > 0 {
					t.Errorf("want outcome %q beside a running proxy, with all checks done: %s", Works,
						describe(r))
				}
			}
			if stop() == 0 {
				t.Error("no answered calls during the validation, want some")
			}
		})
	}
}

// callAll continuously makes inbound and outbound calls, which the proxy must answer. stop ends the
// calls, and returns the number of answers.
func callAll(t *testing.T, network *testbed.Network) (stop func() int64) {
	calls := []testbed.Call{
		{From: testbed.FromNeighbor, Network: "tcp", To: netip.AddrPortFrom(testbed.PodIP4, 8080)},
		{From: testbed.FromNeighbor, Network: "tcp", To: netip.AddrPortFrom(testbed.PodIP6, 8080)},
		{
			Owner: testbed.ApplicationOwner, Network: "tcp",
			To: netip.MustParseAddrPort("198.51.100.1:80"),
		},
	}
	var wg sync.WaitGroup
	var answers atomic.Int64
	ended := make(chan struct{})
	for _, call := range calls {
		call.Timeout = 10 * time.Second // enough for a busy host
		wg.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				a, err := network.Dial(call)
				if err != nil || a.Outcome != testbed.Answered ||
					a.By != testbed.Inbound && a.By != testbed.Outbound {
					t.Errorf("%s: %s, error %v; want an answer from the proxy", call, a, err)
					return
				}
				answers.Add(1)
			}
		})
	}
	return func() int64 {
		close(ended)
		wg.Wait()
		return answers.Load()
	}
}

func TestMissingRulesFailBesideARunningProxy(t *testing.T) {
	network := newNetwork(t, testbed.Options{})
	if err := network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner}); err != nil {
		t.Fatal(err)
	}
	o := Options{Redirect: typical(rules.ModeRedirect), Timeout: 200 * time.Millisecond}
	r := runFromNeighbor(t, network, o)
	if ok := named(r, OK); len(ok) > 0 || !r.Running || r.Outcome() != Fails {
		t.Errorf("successful checks %q, want none, and want outcome %q beside a running proxy: %s",
			ok, Fails, describe(r))
	}
}

// Inbound connections that bypass the proxy must fail the validation, although the proxy of a
// sidecar does not listen on the tunnel port, which the validation otherwise uses for comparison.
func TestInboundBypassFailsBesideARunningProxy(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			pair := netnstest.NewPair(t)
			listenLikeProxy(t, pair, 15001, 15006)
			want := []string{"inbound, IPv4", "inbound, IPv6"}
			r := validateRepeatedly(func(timeout time.Duration) Result {
				return validate(t, pair, Options{Redirect: typical(mode), Timeout: timeout})
			}, func(r Result) bool { return len(missingFrom(named(r, Failed), want)) == 0 })
			if missing := missingFrom(named(r, Failed), want); len(missing) > 0 || !r.Running {
				t.Errorf("the checks %q have not failed, want failures beside a running proxy:\n%s", missing,
					describe(r))
			}
		})
	}
}

// The kernel reports even to an unprivileged process which socket accepted a connection.
func TestUnprivilegedValidationFindsTheRunningProxy(t *testing.T) {
	network := newNetwork(t, testbed.Options{})
	if err := network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner}); err != nil {
		t.Fatal(err)
	}
	o := Options{Redirect: typical(rules.ModeRedirect)}
	if _, err := nft.Apply(network.Pod, rules.MustCompile(o.Redirect)); err != nil {
		t.Fatal(err)
	}
	r := validateAs(t, network.Pod, validationContainer, o)
	if !r.Running || r.Outcome() != WorksInPart || r.Count(OK) != 4 {
		t.Errorf("want outcome %q beside a running proxy, and 4 successful checks: %s", WorksInPart,
			describe(r))
	}
	// Only conntrack reports the destination of a datagram, and reading conntrack requires
	// CAP_NET_ADMIN.
	r = validateAs(t, network.Pod, identity{uid: 1000, gid: 1000}, o)
	want := []string{"outbound, IPv4", "DNS over TCP, IPv4", "outbound, IPv6", "DNS over TCP, IPv6"}
	if got := named(r, OK); !r.Running || !slices.Equal(got, want) {
		t.Errorf("successful checks %q,\nwant %q beside a running proxy: %s", got, want,
			describe(r))
	}
}

// The validation recognizes rules that are applied while it repeats its checks.
func TestValidationRecognizesRulesThatAreAppliedLate(t *testing.T) {
	pair := netnstest.NewPair(t)
	r := typical(rules.ModeRedirect)
	applied := make(chan error, 1)
	go func() {
		err := waitForListener(pair.Pod, true)
		if err == nil {
			err = waitForListener(pair.Pod, false)
		}
		if err == nil {
			_, err = nft.Apply(pair.Pod, rules.MustCompile(r))
		}
		applied <- err
	}()
	got := validate(t, pair, Options{Redirect: r, Timeout: 30 * time.Second})
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	if got.Outcome() == Fails || got.Attempts < 2 {
		t.Errorf("want no failed check after at least 2 attempts: %s", describe(got))
	}
}

// waitForListener waits until the proxy's port has a listener or, if want is false, has none.
func waitForListener(ns *netns.NS, want bool) error {
	for start := time.Now(); time.Since(start) < time.Minute; {
		found, err := findSockets(ns, netip.AddrPort{})
		if err != nil {
			return err
		}
		if found.isListening(rules.TCP, rules.DefaultProxyPort) == want {
			return nil
		}
	}
	return fmt.Errorf("the proxy's port has a listener: %t after a minute, want %t", !want, want)
}

// In the namespace of a pod with hostUsers: false, rules refer to the ids of the user namespace.
func TestValidationInAnotherUserNamespace(t *testing.T) {
	ns := netnstest.NewInUserNS(t)
	network := newNetwork(t, testbed.Options{Pod: ns, IDBase: netnstest.UserNSBase})
	o := Options{Redirect: typical(rules.ModeRedirect)}
	if _, err := nft.Apply(network.Pod, rules.MustCompile(o.Redirect)); err != nil {
		t.Fatal(err)
	}
	// The user namespace has no process. Therefore this process does not know the ids of the user
	// namespace, and cannot send the proxy's probes.
	r := runFromNeighbor(t, network, o)
	if r.Outcome() != WorksInPart || !slices.Contains(named(r, OK), "outbound, IPv6") ||
		slices.Contains(named(r, OK), "the proxy calls 127.0.0.6") {
		t.Errorf("without a process in the user namespace, want outcome %q, success of the check "+
			"%q, and no call of the proxy: %s", WorksInPart, "outbound, IPv6", describe(r))
	}
	netnstest.StartInUserNS(t, ns)
	r = validateRepeatedly(func(timeout time.Duration) Result {
		o.Timeout = timeout
		return runFromNeighbor(t, network, o)
	}, works)
	if r.Outcome() != Works || r.Count(NotChecked) > 0 ||
		!strings.Contains(describe(r), "uid 1337") {
		t.Errorf("with a process in the user namespace, want outcome %q with all checks done, and "+
			"a probe of uid 1337: %s", Works, describe(r))
	}
}
