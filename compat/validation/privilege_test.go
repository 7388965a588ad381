package validation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestChecksOfEachContainer(t *testing.T) {
	const (
		call4, call6 = "the proxy calls 127.0.0.6", "the proxy calls ::6"
		pod4, pod6   = "the proxy calls its pod, 10.244.1.5",
			"the proxy calls its pod, fd00:10:244:1::5"
		group4, group6 = "the proxy's group calls its pod, 10.244.1.5",
			"the proxy's group calls its pod, fd00:10:244:1::5"
	)
	for name, row := range map[string]struct {
		identity identity
		mode     rules.Mode
		checked  []string // the checks that succeed with rules
	}{
		"istio-validation, REDIRECT": {
			validationContainer, rules.ModeRedirect, []string{call4, pod4, call6, pod6},
		},
		"istio-validation, TPROXY": {
			validationContainer, rules.ModeTProxy,
			[]string{call4, pod4, call6, pod6, "source check"},
		},
		"istio-init, REDIRECT": {initContainer, rules.ModeRedirect, []string{
			"outbound, IPv4", "DNS over UDP, IPv4", "DNS over TCP, IPv4",
			"outbound, IPv6", "DNS over UDP, IPv6", "DNS over TCP, IPv6", "rules and routes",
		}},
		"istio-init, TPROXY": {initContainer, rules.ModeTProxy, []string{
			"outbound, IPv4", "DNS over UDP, IPv4", "DNS over TCP, IPv4", "policy route, IPv4",
			"outbound, IPv6", "DNS over UDP, IPv6", "DNS over TCP, IPv6", "policy route, IPv6",
			"source check", "rules and routes",
		}},
		"the proxy's container, TPROXY": {identity{
			gid: 1337, caps: "-all,+net_admin",
		}, rules.ModeTProxy, []string{
			group4, "policy route, IPv4", group6, "policy route, IPv6", "source check",
			"rules and routes",
		}},
		"a runtime's default capabilities": {
			identity{caps: "-all,+setuid,+setgid,+net_raw"}, rules.ModeRedirect, []string{
				call4, pod4, "outbound, IPv4", "DNS over UDP, IPv4", "DNS over TCP, IPv4",
				call6, pod6, "outbound, IPv6", "DNS over UDP, IPv6", "DNS over TCP, IPv6",
			},
		},
		"another user": {identity{uid: 1000, gid: 1000}, rules.ModeRedirect, []string{
			"outbound, IPv4", "DNS over UDP, IPv4", "DNS over TCP, IPv4", "outbound, IPv6",
			"DNS over UDP, IPv6", "DNS over TCP, IPv6",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pair := netnstest.NewPair(t)
			o := Options{Redirect: typical(row.mode)}
			mustApply(t, pair, rules.MustCompile(o.Redirect))
			r := validateAs(t, pair.Pod, row.identity, o)
			if got := named(r, OK); !slices.Equal(got, row.checked) || r.Outcome() != WorksInPart {
				t.Errorf("successful checks %q,\nwant %q and outcome %q of\n%s", got, row.checked,
					WorksInPart, describe(r))
			}
			for _, c := range r.Checks {
				if c.Status == NotChecked && (c.Reason == "" || c.Next == "") {
					t.Errorf("%s was not done, but has no reason or no next step:\n%+v", c.Name, c)
				}
			}
			if testing.Verbose() {
				t.Log(describe(r))
			}
			if _, err := nft.Remove(pair.Pod); err != nil {
				t.Fatal(err)
			}
			o.Timeout = 300 * time.Millisecond
			r = validateAs(t, pair.Pod, row.identity, o)
			want := slices.DeleteFunc(row.checked, func(name string) bool {
				return name == "source check"
			})
			if got := named(r, Failed); !slices.Equal(got, want) || r.Outcome() != Fails {
				t.Errorf("failed checks without rules %q,\nwant %q and outcome %q of\n%s", got, want,
					Fails, describe(r))
			}
		})
	}
}

// Root with the proxy's group and without capabilities can send no probe in TPROXY mode. Correct
// settings do not prove that the rules are correct.
func TestSettingsProveNothing(t *testing.T) {
	pair := netnstest.NewPair(t)
	container := identity{gid: 1337, caps: "-all"}
	o := Options{Redirect: typical(rules.ModeTProxy)}
	r := validateAs(t, pair.Pod, container, o)
	if got := named(r, OK); !slices.Equal(got, []string{"source check"}) ||
		r.Outcome() != NotDecided {
		t.Errorf("want outcome %q, and success of the source check only: %s", NotDecided,
			describe(r))
	}
	// A successful probe that must not be captured proves nothing either.
	o.Redirect = typical(rules.ModeRedirect)
	o.Redirect.LoopbackCIDR, _ = rules.ParseLoopbackCIDR("127.0.0.0/8")
	o.Redirect.IPv6 = false
	r = validateAs(t, netnstest.New(t), validationContainer, o)
	if got := named(r, OK); !slices.Equal(got, []string{"the proxy calls 127.0.0.6"}) ||
		r.Outcome() != NotDecided {
		t.Errorf("want outcome %q, and success of the proxy's call only: %s", NotDecided,
			describe(r))
	}
	if !slices.Contains(r.Unchecked(), "inbound") {
		t.Errorf("unchecked kinds in a namespace without addresses: %q, want inbound among them",
			r.Unchecked())
	}
}

// Istio's own validation accepts any redirection of the proxy's call. Sluice's validation depends
// on the parameters, and reports if they capture nothing.
func TestParametersThatCaptureNothingAreReported(t *testing.T) {
	pair := netnstest.NewPair(t)
	r := rules.DefaultRedirect()
	mustApply(t, pair, rules.MustCompile(r))
	o := Options{Redirect: r}
	if got := validateAs(t, pair.Pod, validationContainer, o); got.Outcome() != CapturesNothing {
		t.Errorf("want outcome %q: %s", CapturesNothing, describe(got))
	}
	// If the parameters capture inbound connections, the same rules fail.
	o.Redirect = typical(rules.ModeRedirect)
	fails := func(got Result) bool {
		return got.Outcome() == Fails && slices.Contains(named(got, Failed), "inbound, IPv4")
	}
	got := validateRepeatedly(func(timeout time.Duration) Result {
		o.Timeout = timeout
		return validate(t, pair, o)
	}, fails)
	if !fails(got) {
		t.Errorf("want outcome %q, and failure of the check %q: %s", Fails, "inbound, IPv4",
			describe(got))
	}
}

// With the loopback CIDR 127.0.0.0/8 Istio's validation always fails, although the rules are
// correct.
func TestValidationSucceedsWithAWideLoopbackCIDR(t *testing.T) {
	pair := netnstest.NewPair(t)
	r := typical(rules.ModeRedirect)
	r.LoopbackCIDR, _ = rules.ParseLoopbackCIDR("127.0.0.0/8")
	mustApply(t, pair, rules.MustCompile(r))
	got := validateAs(t, pair.Pod, validationContainer, Options{Redirect: r})
	if got.Outcome() != WorksInPart ||
		!strings.Contains(got.Checks[0].Found, "itself, not captured") ||
		got.Checks[0].Status != OK {
		t.Errorf("want outcome %q, and success of the first check, because nothing captures its "+
			"probe: %s", WorksInPart, describe(got))
	}
}
