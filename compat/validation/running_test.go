package validation

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
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

func runFromNeighbour(t *testing.T, network *testbed.Network, o Options) (r Result) {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, patience)
	err := network.Neighbour.Do(func() (err error) {
		r, err = Run(network.Pod, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Besides a running proxy everything is proved too, and the proxy gets each connection that is its
// own.
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
			o := Options{Redirect: usual(mode)}
			if _, err := nft.Apply(network.Pod, rules.MustCompile(o.Redirect)); err != nil {
				t.Fatal(err)
			}
			stop := callAll(t, network)
			for range 5 {
				r := patiently(func(timeout time.Duration) Result {
					o.Timeout = timeout
					return runFromNeighbour(t, network, o)
				}, works)
				if r.Outcome() != Works || !r.Running || r.Count(NotChecked) > 0 {
					t.Error(describe(r))
				}
			}
			if n := len(stop()); n == 0 {
				t.Error("no call was made meanwhile")
			}
		})
	}
}

// callAll calls the proxy without pause, in and out, until the returned function is called, which
// returns the answers. Each call must be answered by the proxy.
func callAll(t *testing.T, network *testbed.Network) (stop func() []string) {
	calls := []testbed.Call{
		{From: testbed.FromNeighbour, Network: "tcp", To: netip.AddrPortFrom(testbed.PodIP4, 8080)},
		{From: testbed.FromNeighbour, Network: "tcp", To: netip.AddrPortFrom(testbed.PodIP6, 8080)},
		{
			Owner: testbed.ApplicationOwner, Network: "tcp",
			To: netip.MustParseAddrPort("198.51.100.1:80"),
		},
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var answers []string
	ended := make(chan struct{})
	for _, call := range calls {
		call.Timeout = 10 * time.Second // whatever else the host does
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
					t.Errorf("%s: %s, %v", call, a, err)
					return
				}
				mu.Lock()
				answers = append(answers, a.String())
				mu.Unlock()
			}
		})
	}
	return func() []string {
		close(ended)
		wg.Wait()
		return answers
	}
}

func TestRunningProxyWithBrokenRules(t *testing.T) {
	network := newNetwork(t, testbed.Options{})
	if err := network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner}); err != nil {
		t.Fatal(err)
	}
	o := Options{Redirect: usual(rules.ModeRedirect), Timeout: 200 * time.Millisecond}
	r := runFromNeighbour(t, network, o)
	if ok := named(r, OK); len(ok) > 0 || !r.Running || r.Outcome() != Fails {
		t.Errorf("ok are %q of\n%s", ok, describe(r))
	}
}

// Without privilege the kernel still tells which socket has taken a connection.
func TestRunningProxyUnprivileged(t *testing.T) {
	network := newNetwork(t, testbed.Options{})
	if err := network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner}); err != nil {
		t.Fatal(err)
	}
	o := Options{Redirect: usual(rules.ModeRedirect)}
	if _, err := nft.Apply(network.Pod, rules.MustCompile(o.Redirect)); err != nil {
		t.Fatal(err)
	}
	r := validateAs(t, network.Pod, validationContainer, o)
	if !r.Running || r.Outcome() != WorksInPart || r.Count(OK) != 4 {
		t.Error(describe(r))
	}
	// Where a datagram went, only conntrack knows, which answers root.
	r = validateAs(t, network.Pod, person{uid: 1000, gid: 1000}, o)
	if !r.Running || !slices.Equal(named(r,
		OK), []string{
		"outbound, IPv4", "DNS over TCP, IPv4", "outbound, IPv6", "DNS over TCP, IPv6",
	}) {
		t.Error(describe(r))
	}
}

// Rules that come while the validation waits for them are in time.
func TestRulesAreAppliedLate(t *testing.T) {
	pair := netnstest.NewPair(t)
	r := usual(rules.ModeRedirect)
	applied := make(chan error, 1)
	go func() {
		err := untilListener(pair.Pod, true)
		if err == nil {
			err = untilListener(pair.Pod, false)
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
		t.Error(describe(got))
	}
}

// untilListener waits until somebody listens on the proxy's port, or nobody does.
func untilListener(ns *netns.NS, want bool) error {
	for start := time.Now(); time.Since(start) < 10*time.Second; {
		list, err := sockets(ns)
		if err != nil {
			return err
		}
		if listening(list, rules.TCP, rules.DefaultProxyPort) == want {
			return nil
		}
	}
	return fmt.Errorf("waited 10 s for a listener: %t", want)
}

// In the namespace of a pod with hostUsers: false rules mean the ids inside.
func TestOtherUserNamespace(t *testing.T) {
	ns := netnstest.NewInUserNS(t)
	network := newNetwork(t, testbed.Options{Pod: ns, IDBase: netnstest.UserNSBase})
	o := Options{Redirect: usual(rules.ModeRedirect)}
	if _, err := nft.Apply(network.Pod, rules.MustCompile(o.Redirect)); err != nil {
		t.Fatal(err)
	}
	// Nobody is left in the user namespace, so that its ids are not known; but this process is not
	// the proxy.
	r := runFromNeighbour(t, network, o)
	if r.Outcome() != WorksInPart || !slices.Contains(named(r, OK), "outbound, IPv6") ||
		slices.Contains(named(r, OK), "the proxy calls 127.0.0.6") {
		t.Error(describe(r))
	}
	startIn(t, ns)
	r = patiently(func(timeout time.Duration) Result {
		o.Timeout = timeout
		return runFromNeighbour(t, network, o)
	}, works)
	if r.Outcome() != Works || r.Count(NotChecked) > 0 {
		t.Error(describe(r))
	}
	if !strings.Contains(describe(r), "uid 1337") {
		t.Error(describe(r))
	}
}
