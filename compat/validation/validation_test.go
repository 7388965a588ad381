package validation

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// typical returns the parameters that Istio's injector sets by default, with IPv6 and DNS capture.
func typical(mode rules.Mode) rules.Redirect {
	r := rules.DefaultRedirect()
	r.Mode = mode
	r.InboundPorts.All = true
	r.InboundExcludePorts = rules.Singles[uint16](15020, 15021, 15090)
	r.OutboundCIDRs.All = true
	r.IPv6 = true
	r.DNS = rules.DNS{Capture: true, All: true}
	return r
}

func mustApply(t testing.TB, pair netnstest.Pair, rs rules.Ruleset) {
	t.Helper()
	if _, err := nft.Apply(pair.Pod, rs); err != nil {
		t.Fatal(err)
	}
}

// repeatTime is the default time for which the validation repeats failing checks. The validation
// ends as soon as no check fails, and each attempt waits longer for its probes.
const repeatTime = 2 * time.Minute

// validate runs the validation from outside of the pod, like the node agent.
func validate(t testing.TB, pair netnstest.Pair, o Options) (r Result) {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, repeatTime)
	err := pair.Neighbor.Do(func() (err error) {
		r, err = Run(pair.Pod, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// validateRepeatedly repeats the validation with increasing timeouts until ok returns true. On a
// machine that pauses for a tenth of a second, a probe does not arrive in time.
func validateRepeatedly(validate func(timeout time.Duration) Result, ok func(Result) bool) (r Result) {
	for timeout := 300 * time.Millisecond; timeout < repeatTime; timeout *= 4 {
		if r = validate(timeout); ok(r) {
			break
		}
	}
	return r
}

// named returns the names of the checks with the status.
func named(r Result, s Status) []string {
	names := []string{}
	for _, c := range r.Checks {
		if c.Status == s {
			names = append(names, c.Name)
		}
	}
	return names
}

func works(r Result) bool { return r.Outcome() == Works }

func describe(r Result) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s after %d attempts, %s, running %t\n", r.Outcome(), r.Attempts, r.Duration,
		r.Running)
	for _, c := range r.Checks {
		fmt.Fprintf(b, "%-11s %s: %s\n", c.Status, c.Name, c.Packet)
		fmt.Fprintf(b,
			"            want %s\n            got  %s\n            why  %s\n            next %s\n",
			c.Expected, c.Found, c.Reason, c.Next)
	}
	return b.String()
}

var bothModes = []rules.Mode{rules.ModeRedirect, rules.ModeTProxy}

// checksOf returns the names of the checks of one family and mode.
func checksOf(mode rules.Mode, pod, passthrough netip.Addr) []string {
	f := familyName(rules.FamilyOf(pod))
	names := []string{
		fmt.Sprint("the proxy calls ", passthrough), fmt.Sprint("the proxy calls its pod, ", pod),
		"inbound, " + f, "outbound, " + f, "DNS over UDP, " + f, "DNS over TCP, " + f,
	}
	if mode == rules.ModeTProxy {
		names = append(slices.Insert(names, 2,
			fmt.Sprint("the proxy's group calls its pod, ", pod)), "policy route, "+f)
	}
	return names
}

func TestAllChecksSucceed(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			pair := netnstest.NewPair(t)
			mustApply(t, pair, rules.MustCompile(typical(mode)))
			r := validateRepeatedly(func(timeout time.Duration) Result {
				return validate(t, pair, Options{Redirect: typical(mode), Timeout: timeout})
			}, works)
			want := append(checksOf(mode, pair.PodIP4, rules.PassthroughIPv4()),
				checksOf(mode, pair.PodIP6, rules.PassthroughIPv6())...)
			if mode == rules.ModeTProxy {
				want = append(want, "source check")
			}
			want = append(want, "rules and routes")
			if got := named(r, OK); !slices.Equal(got, want) || len(r.Checks) != len(want) ||
				r.Outcome() != Works {
				t.Errorf("successful checks %q,\nwant %q, no other checks, and %s: %s", got, want,
					Works, describe(r))
			}
			var list []sockdiag.Socket
			err := pair.Pod.Do(func() error {
				for _, protocol := range []rules.Protocol{rules.TCP, rules.UDP} {
					for s, err := range sockdiag.List(protocol, sockdiag.AnyState) {
						if err != nil {
							return err
						}
						list = append(list, s)
					}
				}
				return nil
			})
			if len(list) > 0 || err != nil {
				t.Errorf("sockets in the pod: %v, error %v; want none", list, err)
			}
		})
	}
}

// TestBrokenNamespacesFail breaks a namespace in different ways, and verifies which checks fail.
func TestBrokenNamespacesFail(t *testing.T) {
	without := func(chains ...string) func(*rules.Redirect, *rules.Ruleset) {
		return func(_ *rules.Redirect, rs *rules.Ruleset) {
			table := &rs.Tables[0]
			table.Chains = slices.DeleteFunc(table.Chains, func(c rules.Chain) bool {
				return slices.Contains(chains, c.Name)
			})
		}
	}
	withoutRules := func(comment string) func(*rules.Redirect, *rules.Ruleset) {
		return func(_ *rules.Redirect, rs *rules.Ruleset) {
			for i := range rs.Tables[0].Chains {
				c := &rs.Tables[0].Chains[i]
				c.Rules = slices.DeleteFunc(c.Rules, func(r rules.Rule) bool {
					return r.Comment == comment
				})
			}
		}
	}
	recompiled := func(change func(*rules.Redirect)) func(*rules.Redirect, *rules.Ruleset) {
		return func(r *rules.Redirect, rs *rules.Ruleset) {
			installed := *r
			change(&installed)
			*rs = rules.MustCompile(installed)
		}
	}
	const (
		call4, call6 = "the proxy calls 127.0.0.6", "the proxy calls ::6"
		pod4, pod6   = "the proxy calls its pod, 10.244.1.5", "the proxy calls its pod, fd00:10:244:1::5"
		rulesCheck   = "rules and routes"
	)
	for name, row := range map[string]struct {
		mode   rules.Mode
		change func(*rules.Redirect, *rules.Ruleset)
		sysctl string
		failed []string
	}{
		"the self calls' rule is missing": {
			change: withoutRules("the proxy calls its own pod"),
			failed: []string{call4, pod4, call6, pod6, rulesCheck},
		},
		"the outbound rule is missing": {
			change: withoutRules("outbound to the proxy"),
			failed: []string{"outbound, IPv4", "outbound, IPv6", rulesCheck},
		},
		"the inbound chain is missing": {
			change: without("nat-prerouting"),
			failed: []string{"inbound, IPv4", "inbound, IPv6", rulesCheck},
		},
		"inbound goes to another port": {
			change: recompiled(func(r *rules.Redirect) { r.InboundCapturePort = 15007 }),
			failed: []string{
				call4, pod4, "inbound, IPv4", call6, pod6, "inbound, IPv6", rulesCheck,
			},
		},
		"outbound goes to another port": {
			change: recompiled(func(r *rules.Redirect) { r.ProxyPort = 15009 }),
			failed: []string{"outbound, IPv4", "outbound, IPv6", rulesCheck},
		},
		"IPv6 has no rules": {
			change: recompiled(func(r *rules.Redirect) { r.IPv6 = false }),
			failed: []string{
				call6, pod6, "inbound, IPv6", "outbound, IPv6", "DNS over UDP, IPv6",
				"DNS over TCP, IPv6", rulesCheck,
			},
		},
		"::6 is missing": {
			change: func(_ *rules.Redirect, rs *rules.Ruleset) { rs.Routing.LoopbackAddrs = nil },
			failed: []string{call6, rulesCheck},
		},
		"DNS has no zones": {
			change: without("raw-output", "raw-prerouting"),
			failed: []string{rulesCheck},
		},
		"DNS is not captured": {
			change: recompiled(func(r *rules.Redirect) { r.DNS.Capture = false }),
			failed: []string{
				"DNS over UDP, IPv4", "DNS over TCP, IPv4", "DNS over UDP, IPv6",
				"DNS over TCP, IPv6", rulesCheck,
			},
		},
		"the policy routes are missing": {
			mode:   rules.ModeTProxy,
			change: func(_ *rules.Redirect, rs *rules.Ruleset) { rs.Routing.Policies = nil },
			failed: []string{"policy route, IPv4", "policy route, IPv6", rulesCheck},
		},
		"the tproxy chain is missing": {
			mode: rules.ModeTProxy, change: without("mangle-prerouting"),
			failed: []string{
				"the proxy's group calls its pod, 10.244.1.5", "inbound, IPv4",
				"the proxy's group calls its pod, fd00:10:244:1::5", "inbound, IPv6", rulesCheck,
			},
		},
		"the self calls are not marked": {
			mode: rules.ModeTProxy, change: without("mangle-output"),
			failed: []string{
				"the proxy's group calls its pod, 10.244.1.5",
				"the proxy's group calls its pod, fd00:10:244:1::5", rulesCheck,
			},
		},
		"src_valid_mark is set": {
			mode: rules.ModeTProxy, sysctl: "ipv4/conf/eth0/src_valid_mark",
			failed: []string{"inbound, IPv4", "source check"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair := netnstest.NewPair(t)
			mode := row.mode
			if mode == "" {
				mode = rules.ModeRedirect
			}
			r := typical(mode)
			rs := rules.MustCompile(r)
			if row.change != nil {
				row.change(&r, &rs)
			}
			mustApply(t, pair, rs)
			if row.sysctl != "" {
				err := pair.Pod.Do(func() error {
					return os.WriteFile("/proc/sys/net/"+row.sysctl, []byte("1"), 0)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			got := validateRepeatedly(func(timeout time.Duration) Result {
				return validate(t, pair, Options{Redirect: r, Timeout: timeout})
			}, func(got Result) bool { return slices.Equal(named(got, Failed), row.failed) })
			if !slices.Equal(named(got, Failed), row.failed) || got.Outcome() != Fails {
				t.Errorf("failed checks %q,\nwant %q and %s: %s", named(got, Failed), row.failed,
					Fails, describe(got))
			}
			for _, c := range got.Checks {
				if c.Status == Failed && (c.Expected == "" || c.Found == "" || c.Next == "") {
					t.Errorf("%s lacks the expectation, the finding or the next step:\n%+v", c.Name, c)
				}
			}
			if testing.Verbose() {
				t.Log(describe(got))
			}
		})
	}
}

// At equal priority the chain registered last runs first. The reason of a failed check names the
// rule that decides. Because Sluice's own rules are correct, applying them is not suggested.
func TestForeignChainDecides(t *testing.T) {
	nftBinary := netnstest.RequireBinary(t, "nft")
	pair := netnstest.NewPair(t)
	r := typical(rules.ModeRedirect)
	r.StrictIstio()
	mustApply(t, pair, rules.MustCompile(r))
	cmd := exec.Command(nftBinary, "-f", "-")
	cmd.Stdin = strings.NewReader(`table inet foreign {
	chain out {
		type nat hook output priority -100;
		tcp dport 15002 meta skuid 0 redirect to :7777
	}
}`)
	err := pair.Pod.Do(func() error {
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"outbound, IPv4", "outbound, IPv6"}
	got := validateRepeatedly(func(timeout time.Duration) Result {
		return validate(t, pair, Options{Redirect: r, Timeout: timeout})
	}, func(got Result) bool { return slices.Equal(named(got, Failed), want) })
	if failed := named(got, Failed); !slices.Equal(failed, want) {
		t.Fatalf("failed checks %q, want %q: %s", failed, want, describe(got))
	}
	for _, c := range got.Checks {
		if c.Status == Failed &&
			(!strings.Contains(c.Reason,
				"redirected to port 7777 of this host: inet foreign out") ||
				!strings.HasPrefix(c.Next, "the rules are correct")) {
			t.Errorf("%s: reason %q, next step %q; want a redirection by the foreign chain, and "+
				"correct rules", c.Name, c.Reason, c.Next)
		}
	}
}

func TestValidationFailsWithoutRules(t *testing.T) {
	pair := netnstest.NewPair(t)
	got := validate(t, pair, Options{Redirect: typical(rules.ModeRedirect), Timeout: 5 * time.Second})
	if ok := named(got, OK); len(ok) > 0 || got.Outcome() != Fails {
		t.Errorf("successful checks %q, want none and %s: %s", ok, Fails, describe(got))
	}
	if got.Duration < time.Second || got.Duration > time.Minute || got.Attempts < 2 {
		t.Errorf("ended after %d attempts in %s, want at least 2 attempts in 1s to 1m",
			got.Attempts, got.Duration)
	}
}
