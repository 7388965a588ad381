package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// shell runs a script in the namespace.
func shell(t *testing.T, ns *netns.NS, script string) {
	t.Helper()
	err := ns.Do(func() error {
		command := exec.Command("sh", "-ec", script)
		command.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":"+netnstest.SystemPath,
			"XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s", script, out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// legacyNames returns the names of the iptables-legacy tables that exist.
func legacyNames(t *testing.T, ns *netns.NS) string {
	t.Helper()
	ids, err := xtables.Tables(ns)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, id := range ids {
		names = append(names, id.Name)
	}
	return strings.Join(names, " ")
}

func TestGatherHealthyPod(t *testing.T) {
	pair := netnstest.NewPair(t)
	f := Gather(pair.Pod, rules.Ruleset{}, budget)
	if f.FeaturesErr != nil || f.SettingsErr != nil || f.InterfacesErr != nil ||
		f.TablesErr != nil || f.LegacyErr != nil {
		t.Errorf("facts could not be read: %+v", f)
	}
	if f.Settings["net.ipv4.conf.eth0.src_valid_mark"] != "0" ||
		f.Settings["net.ipv4.ip_local_port_range"] == "" || len(f.Features) < 5 {
		t.Errorf("sysctls %v, features %v; want the sysctls of eth0 and at least 5 features",
			f.Settings, f.Features)
	}
	i := slices.IndexFunc(f.Interfaces, func(i Interface) bool { return i.Name == "eth0" })
	if i < 0 || !f.Interfaces[i].Up || !slices.Contains(f.Interfaces[i].Addrs, pair.PodIP6) {
		t.Errorf("interfaces %v, want eth0 up, with the address %s", f.Interfaces, pair.PodIP6)
	}
	if names := legacyNames(t, pair.Pod); names != "" {
		t.Errorf("iptables-legacy tables %s after Gather, want none", names)
	}
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		findings := Diagnose(f, typical(mode))
		if VerdictOf(findings) != Works || findings[0].Severity == Warning {
			t.Errorf("%s: want the verdict %q and no warning, got\n%s", mode, Works, list(findings))
		}
	}
	if _, err := nft.Apply(pair.Pod, rules.MustCompile(typical(rules.ModeTProxy))); err != nil {
		t.Fatal(err)
	}
	facts := Gather(pair.Pod, rules.MustCompile(typical(rules.ModeTProxy)), budget)
	findings := Diagnose(facts, typical(rules.ModeTProxy))
	// Programs at the cgroup root belong to the test machine.
	findings = slices.DeleteFunc(findings, func(f Finding) bool { return f.Topic == "programs" })
	if findings[0].Severity != OK {
		t.Errorf("with Sluice's rules: want only findings of severity %q, got\n%s", OK, list(findings))
	}
}

func TestGatherLegacyTables(t *testing.T) {
	legacy, legacy6 := netnstest.RequireBinary(t, "iptables-legacy"),
		netnstest.RequireBinary(t, "ip6tables-legacy")
	pair := netnstest.NewPair(t)
	shell(t, pair.Pod, strings.NewReplacer("iptables4", legacy, "iptables6", legacy6).Replace(`
		iptables4 -t nat -N ISTIO_OUTPUT
		iptables4 -t nat -A ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 15001
		iptables4 -t nat -N empty
		iptables4 -t nat -A OUTPUT -p tcp -m multiport --dports 1,2,3 -j ISTIO_OUTPUT
		iptables6 -t mangle -L >/dev/null
		iptables6 -t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080`))
	before := legacyNames(t, pair.Pod)
	f := Gather(pair.Pod, rules.Ruleset{}, budget)
	slices.SortFunc(f.Legacy, func(a, b LegacyTable) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name))
	})
	for i := range f.Legacy {
		l := &f.Legacy[i]
		if c := l.Content; c == nil || c.Family != l.Family || c.Name != l.Name || c.CountRules() != l.Rules {
			t.Errorf("content of table %s: %+v, want %d rules", l.Name, c, l.Rules)
		}
		l.Content = nil
	}
	want := []LegacyTable{
		{Family: rules.IPv4, Name: "nat", Chains: []string{"ISTIO_OUTPUT", "empty"}, Rules: 2},
		{Family: rules.IPv6, Name: "mangle"},
		{Family: rules.IPv6, Name: "nat", Rules: 1},
	}
	if !reflect.DeepEqual(f.Legacy, want) || f.LegacyErr != nil {
		t.Errorf("got %+v, error %v\nwant %+v", f.Legacy, f.LegacyErr, want)
	}
	if after := legacyNames(t, pair.Pod); after != before {
		t.Errorf("Gather changed the iptables-legacy tables from %q to %q", before, after)
	}
}

func TestGatherRouting(t *testing.T) {
	ip := netnstest.RequireBinary(t, "ip")
	pair := netnstest.NewPair(t)
	shell(t, pair.Pod, strings.ReplaceAll(`
		IP rule add fwmark 1337 lookup 133
		IP rule add fwmark 1337 lookup 133
		IP -6 rule add fwmark 0x500/0xf00 from fd00::/16 iif eth0 priority 50 lookup 500
		IP route add local default dev lo table 133
		IP -6 route add fd01::/16 dev eth0 table 500
		IP -6 addr add ::6 dev lo`, "IP", ip))
	f := Gather(pair.Pod, rules.Ruleset{}, budget)
	if f.InterfacesErr != nil {
		t.Fatal(f.InterfacesErr)
	}
	withPriority50 := slices.IndexFunc(f.PolicyRules, func(r route.Rule) bool { return r.Priority == 50 })
	if withPriority50 < 0 || f.PolicyRules[withPriority50].Text != "ip -6 rule priority 50 from fd00::/16 iif eth0 fwmark 0x500/0xf00 lookup 500" {
		t.Errorf("no IPv6 rule with priority 50 and the desired text in %+v", f.PolicyRules)
	}
	local := slices.ContainsFunc(f.Routes, func(r route.Route) bool {
		return r.Table == 133 && r.Family == rules.IPv4 && r.IsDefault && r.IsLocalDefault
	})
	other := slices.ContainsFunc(f.Routes, func(r route.Route) bool {
		return r.Table == 500 && r.Family == rules.IPv6 && !r.IsDefault && !r.IsLocalDefault
	})
	for _, want := range []string{
		"ip -4 route local default dev lo table 133",
		"ip -6 route unicast fd01::/16 dev eth0 table 500 metric 1024",
	} {
		if !slices.ContainsFunc(f.Routes, func(r route.Route) bool { return r.Text == want }) {
			t.Errorf("no route %q in %+v", want, f.Routes)
		}
	}
	if !local || !other {
		t.Errorf("routes %+v, want a local default route in table 133 and another route in table 500",
			f.Routes)
	}
	r := typical(rules.ModeTProxy)
	findings := list(Diagnose(f, r))
	for _, want := range []string{
		"IPv4 has 2 rules for the mark 0x539", "match another rule first: ip -6 rule priority 50",
		"lo has ::6, but there are no rules",
	} {
		if !strings.Contains(findings, want) {
			t.Errorf("missing %q in\n%s", want, findings)
		}
	}
}

// At equal priority, the chain registered last captures. The verdict must agree with a real
// connection.
func TestVerdictFollowsTheKernelsOrderOfChains(t *testing.T) {
	nftables := netnstest.RequireBinary(t, "nft")
	netnstest.RequireIDs(t, 1337, 1337)
	strict := typical(rules.ModeRedirect)
	strict.StrictIstio()
	for name, row := range map[string]struct {
		params   rules.Redirect
		priority string
		after    bool // the foreign chain is registered after Sluice's
		captured bool
	}{
		"equal priorities, the foreign chain registered first": {strict, "-100", false, true},
		"equal priorities, Sluice's chain registered first":    {strict, "-100", true, false},
		"Sluice's chain has the earlier priority":              {typical(rules.ModeRedirect), "-100", true, true},
		"the foreign chain has the earlier priority":           {typical(rules.ModeRedirect), "-120", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			network, err := testbed.New(testbed.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer network.Close()
			if err := network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner}); err != nil {
				t.Fatal(err)
			}
			addForeignChain := func() {
				shell(t, network.Pod, nftables+` -f - <<END
					table ip other {
						chain out {
							type nat hook output priority `+row.priority+`;
							tcp dport 80 redirect to :15090
						}
					}
END`)
			}
			if !row.after {
				addForeignChain()
			}
			if _, err := nft.Apply(network.Pod, rules.MustCompile(row.params)); err != nil {
				t.Fatal(err)
			}
			if row.after {
				addForeignChain()
			}
			call := testbed.Call{
				Network: "tcp", Owner: testbed.ApplicationOwner,
				To: netip.MustParseAddrPort("198.51.100.1:80"),
			}
			if row.captured {
				// Wait long only for an answer that must arrive.
				call.Timeout = 20 * time.Second
			}
			answer, err := network.Dial(call)
			if captured := answer.By == testbed.Outbound; err != nil || captured != row.captured {
				t.Errorf("the answer is %s, error %v; want captured %t", answer, err, row.captured)
			}
			facts := Gather(network.Pod, rules.MustCompile(row.params), budget)
			findings := Diagnose(facts, row.params)
			if (VerdictOf(findings) == Works) != row.captured {
				t.Errorf("captured is %t, but the verdict is %q:\n%s", row.captured, VerdictOf(findings),
					list(findings))
			}
		})
	}
}

// TestPacketAndRawSocketsAreFound opens a packet socket, and a raw socket of each family, in a
// namespace.
func TestPacketAndRawSocketsAreFound(t *testing.T) {
	ns := netnstest.New(t)
	err := ns.Do(func() error {
		for _, kind := range [][3]int{
			{unix.AF_PACKET, unix.SOCK_RAW, 0},
			{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
			{unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		} {
			fd, err := unix.Socket(kind[0], kind[1]|unix.SOCK_CLOEXEC, kind[2])
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f := Gather(ns, rules.MustCompile(rules.DefaultRedirect()), budget)
	if f.SocketsErr != nil || len(f.Sockets) != 3 || !f.Sockets[0].Packet || f.Sockets[1].Packet {
		t.Fatalf("sockets %+v, error %v; want a packet socket and two raw sockets", f.Sockets,
			f.SocketsErr)
	}
	for _, s := range f.Sockets {
		self := fmt.Sprintf("[%d]", os.Getpid())
		if len(s.Processes) != 1 || !strings.HasSuffix(s.Processes[0], self) {
			t.Errorf("processes %q, want only this one, %s", s.Processes, self)
		}
	}
}

// TestSocketsAreReadUpToALimit checks that the numbers of sockets and of file descriptors that
// are read are limited, and that a finding says what was not examined.
func TestSocketsAreReadUpToALimit(t *testing.T) {
	ns := netnstest.New(t)
	if err := ns.Do(func() error {
		for range 3 {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	defer func(sockets, descriptors int) {
		maxRawSockets, maxDescriptors = sockets, descriptors
	}(maxRawSockets, maxDescriptors)
	params := rules.DefaultRedirect()
	gather := func() (Facts, string) {
		f := Gather(ns, rules.MustCompile(params), budget)
		return f, fmt.Sprint(list(Diagnose(f, params)))
	}
	maxRawSockets = 2
	if f, findings := gather(); len(f.Sockets) != 2 || !strings.Contains(findings,
		"not all packet and raw sockets are known: there are more than 2") ||
		!strings.Contains(findings, "a packet socket (AF_PACKET) of") {
		t.Errorf("%d sockets, findings\n%s\nwant 2 sockets, and that there are more", len(f.Sockets), findings)
	}
	maxRawSockets, maxDescriptors = 3, 1
	if f, findings := gather(); len(f.Sockets) != 3 || len(f.Sockets[0].Processes) > 0 ||
		!strings.Contains(findings, "the processes of some sockets are unknown: all processes together "+
			"have more than 1 file descriptors") {
		t.Errorf("sockets %+v, findings\n%s\nwant 3 sockets of unknown processes", f.Sockets, findings)
	}
}

// TestDriftedRules verifies that rules of Sluice that differ from the parameters are a problem if
// captured traffic therefore bypasses the proxy, and otherwise a warning.
func TestDriftedRules(t *testing.T) {
	nftables := netnstest.RequireBinary(t, "nft")
	const notrack = `
		nft add chain inet sluice early "{ type filter hook output priority -400; }"
		nft add rule inet sluice early tcp dport 80 notrack`
	const dormant = `nft add table inet sluice "{ flags dormant; }"`
	for name, row := range map[string]struct {
		mode     rules.Mode
		script   string
		severity Severity
		want     string
		verdict  Verdict
	}{
		"the table is dormant": {
			rules.ModeRedirect, dormant, Problem, "goes to its destination, not captured", Degraded,
		},
		"the table is dormant, TPROXY": {
			rules.ModeTProxy, dormant, Problem, "goes to its destination, not captured", Degraded,
		},
		"a chain in the table bypasses the proxy": {
			rules.ModeRedirect, notrack, Problem,
			"extra in the ruleset: chain inet sluice early): packets with", Degraded,
		},
		"a rule of the table is missing": {
			rules.ModeRedirect, "nft flush chain inet sluice nat-output", Problem, "and 7 more",
			Degraded,
		},
		"a rule without an effect on captured traffic": {
			rules.ModeRedirect, "nft add rule inet sluice nat-output udp dport 9 accept", Warning,
			"extra in chain inet sluice nat-output", Works,
		},
		"the table is equal": {
			rules.ModeRedirect, "", OK, "table inet sluice exists, with 24 rules", Works,
		},
		"there is no table": {
			rules.ModeRedirect, "nft delete table inet sluice", Note, "there are no rules of Sluice",
			Works,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pair := netnstest.NewPair(t)
			parameters := typical(row.mode)
			desired := rules.MustCompile(parameters)
			if _, err := nft.Apply(pair.Pod, desired); err != nil {
				t.Fatal(err)
			}
			shell(t, pair.Pod, strings.ReplaceAll(row.script, "nft ", nftables+" "))
			findings := Diagnose(Gather(pair.Pod, desired, budget), parameters)
			found := slices.ContainsFunc(findings, func(f Finding) bool {
				return f.Severity == row.severity && strings.Contains(f.Summary, row.want)
			})
			if verdict := VerdictOf(findings); !found || verdict != row.verdict {
				t.Errorf("verdict %q, want %q and a %s with %q; got\n%s", verdict, row.verdict,
					row.severity, row.want, list(findings))
			}
		})
	}
}

// TestDriftedRulesOverBudget verifies that samples of packets are evaluated if the decision about
// drifted rules exceeds its budget.
func TestDriftedRulesOverBudget(t *testing.T) {
	ns := netnstest.New(t)
	parameters := typical(rules.ModeTProxy)
	desired := rules.MustCompile(parameters)
	if _, err := nft.Apply(ns, desired); err != nil {
		t.Fatal(err)
	}
	shell(t, ns, netnstest.RequireBinary(t, "nft")+` add table inet sluice "{ flags dormant; }"`)
	small := diff.Budget{Time: time.Minute, Memory: 1 << 20}
	facts := Gather(ns, desired, small)
	if facts.DriftEffect == nil || !facts.DriftEffect.Exhausted {
		t.Fatalf("effect of the drift: %+v, want an exhausted budget", facts.DriftEffect)
	}
	findings := Diagnose(facts, parameters)
	if !slices.ContainsFunc(findings, func(f Finding) bool {
		return f.Severity == Problem && strings.Contains(f.Summary, "; with the rules it is not captured")
	}) {
		t.Errorf("want a problem with a packet that is not captured; got\n%s", list(findings))
	}
}

// TestInterruptedLists checks that a list is read again if a change interrupts the dump, and that a
// list that changes continuously is used and reported as incomplete.
func TestInterruptedLists(t *testing.T) {
	for _, row := range []struct {
		interruptions int
		err           error
		interrupted   string
		wantErr       string
	}{
		{0, nil, "[]", "<nil>"},
		{dump.Attempts - 1, nil, "[]", "<nil>"},
		{dump.Attempts, nil, "[routes]", "<nil>"},
		{0, unix.EPERM, "[]", "list routes: operation not permitted"},
	} {
		f, calls := Facts{}, 0
		found, err := listObjects(&f, "routes", func() ([]int, error) {
			if calls++; calls <= row.interruptions {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, row.err
		})
		if want := 1 + min(1, max(0, dump.Attempts-row.interruptions)); len(found) != want ||
			fmt.Sprint(f.Interrupted) != row.interrupted || fmt.Sprint(err) != row.wantErr {
			t.Errorf("%d interruptions, error %v: found %v, interrupted %v, error %v; want %d objects, %s, %s",
				row.interruptions, row.err, found, f.Interrupted, err, want, row.interrupted, row.wantErr)
		}
	}
}
