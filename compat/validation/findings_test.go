package validation

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

func TestProbeResults(t *testing.T) {
	own := netip.MustParseAddrPort("10.244.1.5:41000")
	r := typical(rules.ModeRedirect)
	outbound := planned(t, Options{Redirect: r}, ordinaryInputs(), "outbound, IPv4")
	inbound := planned(t, Options{Redirect: r}, ordinaryInputs(), "inbound, IPv4")
	dns := planned(t, Options{Redirect: r}, ordinaryInputs(), "DNS over UDP, IPv4")
	wideLoopback := r
	wideLoopback.LoopbackCIDR = netip.MustParsePrefix("127.0.0.0/8")
	uncaptured := planned(t, Options{Redirect: wideLoopback}, ordinaryInputs(),
		"the proxy calls 127.0.0.6")
	listenerExpected := uncaptured
	listenerExpected.listenerExpected = true
	at := func(port uint16, original string) observation {
		o := observation{outcome: arrived, source: own, arrival: arrival{port: port}}
		if original != "" {
			o.arrival.original = netip.MustParseAddrPort(original)
		}
		return o
	}
	for name, row := range map[string]struct {
		probe probe
		seen  observation
		want  Status
		found string
	}{
		"arrived with its original destination": {
			outbound, at(15001, "198.51.100.1:15002"), OK,
			"arrived at port 15001, with 198.51.100.1:15002",
		},
		"arrived at the running proxy": {
			outbound, at(15001, ""), OK, "arrived at port 15001",
		},
		"arrived with another original destination": {
			outbound, at(15001, "10.0.0.1:80"), Failed,
			"with 10.0.0.1:80 as the original destination",
		},
		"arrived at another port": {
			outbound, at(15009, ""), Failed, "arrived at port 15009",
		},
		"refused": {
			outbound,
			observation{outcome: refused, source: own},
			Failed,
			"refused: there is no listener",
		},
		"no answer": {
			outbound,
			observation{outcome: unanswered, source: own},
			Failed,
			"it was dropped, or has left the pod",
		},
		"answered outside of the pod": {
			outbound, observation{outcome: receivedOutside, source: own}, Failed, "not captured",
		},
		"not sent": {
			outbound,
			observation{err: unix.EPERM},
			Failed,
			"could not be sent: operation not permitted",
		},
		"accepted by an unknown socket": {
			outbound,
			observation{outcome: unknown, err: unix.ENOENT},
			NotChecked,
			"it is unknown which socket received it",
		},
		"not captured, as expected": {
			uncaptured, at(15002, "127.0.0.6:15002"), OK,
			"arrived at 127.0.0.6:15002 itself, not captured",
		},
		"no listener at the destination": {
			uncaptured, observation{outcome: refused}, OK, "refused",
		},
		"an expected listener at the destination": {
			listenerExpected, observation{outcome: refused}, Failed, "refused",
		},
		"captured unexpectedly": {
			uncaptured, at(15006, "127.0.0.6:15002"), Failed, "arrived at port 15006",
		},
		"inbound arrived": {
			inbound, at(15006, "10.244.1.5:15002"), OK, "arrived at port 15006",
		},
		"inbound uncaptured": {
			inbound, at(15002, "10.244.1.5:15002"), Failed, "itself, not captured",
		},
		"inbound refused at an unknown place": {
			inbound, observation{outcome: refused}, NotChecked, "refused",
		},
		"inbound refused in the pod": {
			inbound, observation{outcome: refused, controlArrived: true}, Failed, "refused",
		},
		"inbound dropped in the pod": {
			inbound, observation{outcome: unanswered, controlArrived: true}, Failed, "no answer",
		},
		"inbound unanswered at an unknown place": {
			inbound, observation{outcome: unanswered}, NotChecked, "no answer",
		},
		"a query answered": {
			dns,
			observation{outcome: answered, arrival: arrival{port: 15053}},
			OK,
			"answered with the source address 198.51.100.1:53",
		},
		"a query with a lost answer": {
			dns, at(15053, ""), Failed, "the answer did not come back",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := row.probe.result(row.seen, false)
			if c.Status != row.want || !strings.Contains(c.Found, row.found) {
				t.Errorf("status %s, found %q; want status %s, found %q", c.Status, c.Found,
					row.want, row.found)
			}
			matching := row.probe.result(row.seen, true)
			if matching.Status != c.Status || strings.Contains(matching.Next, "differ") ||
				c.Status == Failed && !strings.Contains(matching.Next, "rules doctor") {
				t.Errorf("if the rules match the parameters: %+v; want status %s, and after a "+
					"failure the next step \"rules doctor\"", matching, c.Status)
			}
			if c.Status == Failed && c.Next == "" || c.Status == NotChecked && c.Reason == "" {
				t.Errorf("a failed check without a next step, or a check that was not done "+
					"without a reason: %+v", c)
			}
		})
	}
}

func TestOutcome(t *testing.T) {
	checks := func(statuses ...Status) (r Result) {
		for _, s := range statuses {
			r.Checks = append(r.Checks, Check{Kind: Inbound, Proves: true, Status: s})
		}
		return r
	}
	withCheck := func(r Result, c Check) Result {
		r.Checks = append(r.Checks, c)
		return r
	}
	setting := sourceMarkResult(3, nil)
	empty := checks(OK, NotChecked)
	empty.Empty = true
	for _, row := range []struct {
		r    Result
		want Outcome
	}{
		{checks(OK, OK), Works},
		{checks(OK, NotChecked), WorksInPart},
		// The parameters capture no outbound connection.
		{withCheck(checks(OK), Check{Kind: Outbound, Status: NotChecked}), Works},
		{withCheck(checks(OK), Check{Kind: Outbound, Proves: true, Status: NotChecked}), WorksInPart},
		{withCheck(checks(OK), setting), Works},
		{withCheck(checks(NotChecked, NotChecked), setting), NotDecided},
		// A connection that is not captured proves nothing.
		{withCheck(checks(NotChecked), Check{Kind: SelfCalls, Status: OK}), NotDecided},
		{withCheck(checks(OK), sourceMarkResult(3, []string{"all"})), Fails},
		{checks(OK, Failed), Fails},
		{checks(NotChecked), NotDecided},
		{Result{}, NotDecided},
		{empty, CapturesNothing},
	} {
		if got := row.r.Outcome(); got != row.want {
			t.Errorf("%+v: %s, want %s", row.r, got, row.want)
		}
	}
}

func TestUncheckedConsidersOnlyChecksThatProve(t *testing.T) {
	r := Result{Checks: []Check{
		{Kind: SelfCalls, Proves: true, Status: OK},
		{Kind: Inbound, Proves: true, Status: NotChecked},
		{Kind: Outbound, Status: NotChecked},
		{Kind: DNS, Proves: true, Status: NotChecked},
		{Kind: Inbound, Proves: true, Status: NotChecked},
		{Kind: DNS, Proves: true, Status: OK},
		{Kind: Settings, Status: NotChecked},
	}}
	if got, want := r.Unchecked(), []string{"inbound", "DNS in part"}; !slices.Equal(got, want) {
		t.Errorf("unchecked kinds %q, want %q", got, want)
	}
}

func TestSourceCheckFailsIfSrcValidMarkIsSet(t *testing.T) {
	for _, row := range []struct {
		readable int
		enabled  []string
		want     Status
	}{
		{0, nil, NotChecked},
		{3, nil, OK},
		{3, []string{"default"}, OK},
		{3, []string{"all"}, Failed},
		{3, []string{"default", "eth0"}, Failed},
	} {
		if got := sourceMarkResult(row.readable, row.enabled); got.Status != row.want {
			t.Errorf("%d readable sysctls, enabled for %v: %s, want %s", row.readable, row.enabled,
				got.Status, row.want)
		}
	}
	const want = "sysctl -w net.ipv4.conf.all.src_valid_mark=0 net.ipv4.conf.eth0.src_valid_mark=0"
	if got := sourceMarkResult(3, []string{"all", "default", "eth0"}).Next; got != want {
		t.Errorf("the next step is %q, want %q", got, want)
	}
}
