package validation

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func ambientRules(t *testing.T, a rules.Ambient) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// With the rules of each backend, all checks of a pod in ambient mode succeed, with and without a
// ztunnel that listens.
func TestAmbientModeWorks(t *testing.T) {
	for _, backend := range compat.Backends() {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, running ztunnel %t", backend.Name(), running), func(t *testing.T) {
				pair := netnstest.NewPair(t)
				a := rules.DefaultAmbient()
				if _, err := backend.Apply(pair.Pod, ambientRules(t, a), compat.EmptySnapshot()); err != nil {
					t.Fatal(err)
				}
				if running {
					listenLikeProxy(t, pair, 15001, 15006, 15008)
				}
				r := validate(t, pair, Options{Ambient: &a, Backend: backend.Name()})
				if r.Outcome() != Works || r.Running != running || r.Count(NotChecked) > 0 {
					t.Fatalf("want outcome %q with all checks done, running %t: %s", Works, running,
						describe(r))
				}
				want := []string{"rules and routes"}
				for _, ip := range []string{pair.PodIP4.String(), pair.PodIP6.String()} {
					f := "IPv4"
					if strings.Contains(ip, ":") {
						f = "IPv6"
					}
					want = append(want, "ztunnel calls the application as a client, "+ip, "inbound, "+f,
						"inbound HBONE, "+f, "outbound, "+f, "DNS over UDP, "+f, "DNS over TCP, "+f,
						"policy route, "+f)
				}
				got := named(r, OK)
				slices.Sort(got)
				slices.Sort(want)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("successful checks (-want +got)\n%s", d)
				}
			})
		}
	}
}

// listenLikeProxy listens in the pod on the TCP ports, and on ztunnel's DNS port for TCP and UDP.
func listenLikeProxy(t *testing.T, pair netnstest.Pair, ports ...int) {
	t.Helper()
	err := pair.Pod.Do(func() error {
		for _, network := range []string{"tcp4", "tcp6"} {
			for _, port := range append(ports, rules.DNSPort) {
				l, err := net.Listen(network, fmt.Sprintf(":%d", port))
				if err != nil {
					return err
				}
				t.Cleanup(func() { _ = l.Close() })
			}
		}
		for _, network := range []string{"udp4", "udp6"} {
			l, err := net.ListenPacket(network, fmt.Sprintf(":%d", rules.DNSPort))
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// If a part of ambient mode is missing, the checks of its connections fail.
func TestBrokenAmbientModeFails(t *testing.T) {
	const call = "ztunnel calls the application as a client, 10.244.1.5"
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, pair netnstest.Pair)
		want   []string // checks of IPv4 that must fail; others may fail too
	}{
		{
			"no rules", func(t *testing.T, pair netnstest.Pair) {
				if _, err := nft.Remove(pair.Pod); err != nil {
					t.Fatal(err)
				}
			},
			[]string{call, "inbound, IPv4", "outbound, IPv4", "DNS over TCP, IPv4"},
		},
		{
			"no policy routes", func(t *testing.T, pair netnstest.Pair) {
				if _, err := route.Prune(pair.Pod, rules.Routing{}); err != nil {
					t.Fatal(err)
				}
			},
			[]string{call, "policy route, IPv4"},
		},
		{
			"ztunnel without a listener for HBONE", func(t *testing.T, pair netnstest.Pair) {
				listenLikeProxy(t, pair, 15001, 15006)
			},
			[]string{"inbound HBONE, IPv4"},
		},
		{
			"ztunnel without a listener for outbound connections", func(t *testing.T, pair netnstest.Pair) {
				listenLikeProxy(t, pair, 15006, 15008)
			},
			[]string{"outbound, IPv4"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pair := netnstest.NewPair(t)
			a := rules.DefaultAmbient()
			if _, err := nft.Apply(pair.Pod, ambientRules(t, a)); err != nil {
				t.Fatal(err)
			}
			tc.change(t, pair)
			r := validateRepeatedly(func(timeout time.Duration) Result {
				return validate(t, pair, Options{Ambient: &a, Timeout: timeout})
			}, func(r Result) bool { return len(missingFrom(named(r, Failed), tc.want)) == 0 })
			if missing := missingFrom(named(r, Failed), tc.want); len(missing) > 0 {
				t.Errorf("the checks %q have not failed, want failures:\n%s", missing, describe(r))
			}
		})
	}
}

// missingFrom returns the elements of want that are not in got.
func missingFrom(got, want []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(name string) bool {
		return slices.Contains(got, name)
	})
}

// With parameters that capture less, only the captured connections are tested.
func TestOnlyCapturedConnectionsOfAmbientModeAreTested(t *testing.T) {
	pair := netnstest.NewPair(t)
	a := rules.DefaultAmbient()
	a.DNS, a.IPv6, a.BypassInboundCapture = false, false, true
	if _, err := nft.Apply(pair.Pod, ambientRules(t, a)); err != nil {
		t.Fatal(err)
	}
	r := validate(t, pair, Options{Ambient: &a})
	want := []string{
		"ztunnel calls the application as a client, 10.244.1.5", "outbound, IPv4",
		"policy route, IPv4", "rules and routes",
	}
	if d := cmp.Diff(want, named(r, OK)); d != "" || r.Outcome() != Works {
		t.Errorf("want outcome %q; successful checks (-want +got)\n%s%s", Works, d, describe(r))
	}

	// A pod without IPv6 addresses has rules for IPv6, but no connections of IPv6.
	a = rules.DefaultAmbient()
	if _, err := nft.Apply(pair.Pod, ambientRules(t, a)); err != nil {
		t.Fatal(err)
	}
	r = validate(t, pair, Options{Ambient: &a, PodIPs: []netip.Addr{pair.PodIP4}})
	for _, c := range r.Checks {
		if strings.HasSuffix(c.Name, "IPv6") {
			t.Errorf("check %q: %s, want no check of IPv6 without an IPv6 address", c.Name,
				c.Status)
		}
	}
	if r.Outcome() != Works {
		t.Errorf("without an IPv6 address, want outcome %q: %s", Works, describe(r))
	}
}
