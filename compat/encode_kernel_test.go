package compat_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// installTables adds the chains of the tables to the namespace, and inserts their rules at the
// start of the built-in chains.
func installTables(t testing.TB, ns *netns.NS, tables []rules.Table) {
	t.Helper()
	for _, want := range tables {
		table, err := xtables.Open(ns, want.Family, want.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range want.Chains {
			var list []xtables.Rule
			for i := range c.Rules {
				r, err := compat.EncodeForKernel(want.Family, &c.Rules[i])
				if err != nil {
					t.Fatalf("%s: %v", &c.Rules[i], err)
				}
				list = append(list, r)
			}
			into := table.Chain(c.Name)
			if c.Base == nil {
				added, err := table.AddChains(c.Name)
				if err != nil {
					t.Fatal(err)
				}
				into = &added[0]
			}
			into.Rules = slices.Concat(list, into.Rules)
		}
		if err := xtables.Replace(ns, table); err != nil {
			t.Fatal(err)
		}
	}
}

// withCounters returns the rules as the kernel stores them, with counters.
func withCounters(tables []rules.Table) rules.Ruleset {
	var rs rules.Ruleset
	for _, table := range tables {
		table.Chains = slices.Clone(table.Chains)
		for i := range table.Chains {
			c := &table.Chains[i]
			c.Rules = slices.Clone(c.Rules)
			for j := range c.Rules {
				if r := &c.Rules[j]; len(r.Actions) == 0 ||
					r.Actions[0] != rules.Action(rules.Count{}) {
					r.Actions = append([]rules.Action{rules.Count{}}, r.Actions...)
				}
			}
		}
		rs.Tables = append(rs.Tables, table)
	}
	return rs
}

// kernelRules returns the tables of the namespace without empty built-in chains, and the comments
// of their rules.
func kernelRules(t testing.TB, ns *netns.NS) (rs rules.Ruleset, comments []string) {
	t.Helper()
	ids, err := xtables.Tables(ns)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		table, err := xtables.Read(ns, id.Family, id.Name)
		if err != nil {
			t.Fatal(err)
		}
		found := *compat.DecodeTable(table)
		found.Chains = slices.DeleteFunc(found.Chains, func(c rules.Chain) bool {
			return c.Base != nil && len(c.Rules) == 0
		})
		rs.Tables = append(rs.Tables, found)
		comments = append(comments, commentsOf(found)...)
	}
	return rs, comments
}

func commentsOf(tables ...rules.Table) []string {
	var list []string
	for _, table := range tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				list = append(list,
					fmt.Sprintf("%s %s %s: %s", table.Family, table.Name, c.Name, r.Comment))
			}
		}
	}
	slices.Sort(list)
	return list
}

// parameterSets lists parameters that together need every match and action.
var parameterSets = map[string][]func(*rules.Redirect){
	"REDIRECT":    {},
	"dual stack":  {dual, exclusions},
	"TPROXY":      {tproxy, dropInvalid},
	"TPROXY, all": {tproxy, dual, allDNS, dropInvalid, exclusions},
	"DNS servers": {dual, func(r *rules.Redirect) {
		r.DNS.Capture = true
		for _, p := range prefixList("10.96.0.10/32,fd00::a/128") {
			r.DNS.Servers = append(r.DNS.Servers, p.Addr())
		}
	}},
	"owners": {dual, func(r *rules.Redirect) {
		r.ProxyUIDs, r.ProxyGIDs = idRanges("1337,5,7-9"), idRanges("1337,4294967294")
		r.OwnerGroups = rules.GroupSelection{IDs: idRanges("202,300-400,0")}
	}},
	"many ports": {func(r *rules.Redirect) {
		r.InboundPorts = rules.PortSelection{
			Ports: portRanges("1,3,5,7,9,11,13,15,17,19,21,23,25,27-28,30,0,65535,40-50"),
		}
		r.OutboundExcludePorts, r.OutboundPorts = portRanges("53,80-90"), portRanges("0-65535")
	}},
	"interfaces": {tproxy, dual, func(r *rules.Redirect) {
		r.ExcludeInterfaces, r.RerouteInterfaces = interfaceNames("eth1,net+,fifteen-letters"),
			interfaceNames("k6t-eth0,tap+")
	}},
	"TPROXY, KeepEstablished":   {tproxy, dual, func(r *rules.Redirect) { r.KeepEstablished = true }},
	"REDIRECT, KeepEstablished": {dual, allDNS, func(r *rules.Redirect) { r.KeepEstablished = true }},
	"destinations": {dual, func(r *rules.Redirect) {
		list := prefixList(
			"10.0.0.0/7,10.1.2.3/16,127.0.0.2/8,fd00::/9,::1/128,0.0.0.0/1,128.0.0.0/2")
		r.OutboundCIDRs = rules.PrefixSelection{Prefixes: list}
	}},
	"a thousand prefixes": {dual, func(r *rules.Redirect) {
		r.OutboundExcludeCIDRs = manyPrefixes(1000)
	}},
}

// The kernel accepts the encoded rules and lists the same rules. If iptables-restore loads the
// output of iptables-save into another namespace, that namespace has the same rules too.
func TestKernelListsEncodedRules(t *testing.T) {
	for name, change := range parameterSets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			legacy, err := compat.Translate(rules.MustCompile(sidecar(change...)))
			if err != nil {
				t.Fatal(err)
			}
			ns := netnstest.New(t)
			installTables(t, ns, legacy.Tables)
			found, comments := kernelRules(t, ns)
			if diffs := rules.Compare(withCounters(legacy.Tables), found); len(diffs) > 0 {
				t.Errorf("the kernel has other rules:\n%v", diffs)
			}
			if diff := cmp.Diff(commentsOf(legacy.Tables...), comments); diff != "" {
				t.Errorf("comments (-want +got):\n%s", diff)
			}

			second := netnstest.New(t)
			for _, f := range istiotest.Families {
				istiotest.Restore(t, second, istiotest.Legacy, f,
					istiotest.Save(t, ns, istiotest.Legacy, f))
			}
			if diff := cmp.Diff(dumpSorted(t, ns), dumpSorted(t, second)); diff != "" {
				t.Errorf("iptables-save prints other rules after its output was loaded (-before +after):\n%s",
					diff)
			}
			reloaded, _ := kernelRules(t, second)
			if diffs := rules.Compare(found, reloaded); len(diffs) > 0 {
				t.Errorf("the kernel has other rules after loading the output of iptables-save:\n%v",
					diffs)
			}
		})
	}
}

// dumpSorted returns the output of the iptables-save programs, one sorted entry for each table.
// iptables-save prints the tables in the order of their creation.
func dumpSorted(t testing.TB, ns *netns.NS) []string {
	t.Helper()
	var list []string
	for _, f := range istiotest.Families {
		list = append(list, strings.Split(istiotest.Save(t, ns, istiotest.Legacy, f), "*")...)
	}
	slices.Sort(list)
	return list
}

// iptables-save prints the encoded rules as in the constant printed.
func TestIptablesPrintsEncodedRules(t *testing.T) {
	r := sidecar(tproxy, allDNS)
	r.ExcludeInterfaces = interfaceNames("eth1,net+")
	r.InboundExcludePorts, r.OutboundExcludeCIDRs = portRanges("15021,9000-9001"),
		prefixList("10.96.0.0/12")
	legacy, err := compat.Translate(rules.MustCompile(r))
	if err != nil {
		t.Fatal(err)
	}
	ns := netnstest.New(t)
	installTables(t, ns, legacy.Tables)
	comment := regexp.MustCompile(` -m comment --comment ("[^"]*"|\S+)`)
	var got []string
	for line := range strings.Lines(istiotest.Save(t, ns, istiotest.Legacy, rules.IPv4)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "[0:0] ")
		line = comment.ReplaceAllString(line, "")
		if !strings.HasPrefix(line, ":") && line != "COMMIT" {
			got = append(got, line)
		}
	}
	want := strings.Split(strings.TrimSpace(printed), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

const printed = `
*nat
-A OUTPUT -j SLUICE_OUTPUT
-A SLUICE_OUTPUT -o eth1 -j RETURN
-A SLUICE_OUTPUT -o net+ -j RETURN
-A SLUICE_OUTPUT -o lo -g SLUICE_OUTPUT_LO
-A SLUICE_OUTPUT -g SLUICE_OUTPUT_REST
-A SLUICE_OUTPUT_LO -s 127.0.0.6/32 -j RETURN
-A SLUICE_OUTPUT_LO -d 127.0.0.1/32 -g SLUICE_OUTPUT_REST
-A SLUICE_OUTPUT_LO -p tcp -m multiport ! --dports 53,15008 -m owner --uid-owner 1337 -j REDIRECT --to-ports 15006
-A SLUICE_OUTPUT_LO -p tcp -m tcp ! --dport 53 -j RETURN
-A SLUICE_OUTPUT_LO -m owner --uid-owner 1337 -j RETURN
-A SLUICE_OUTPUT_LO -p tcp -m tcp --dport 53 -m owner --gid-owner 1337 -j REDIRECT --to-ports 15006
-A SLUICE_OUTPUT_LO -g SLUICE_OUTPUT_REST
-A SLUICE_OUTPUT_REST -m owner --uid-owner 1337 -j RETURN
-A SLUICE_OUTPUT_REST -m owner --gid-owner 1337 -j RETURN
-A SLUICE_OUTPUT_REST -p tcp -m tcp --dport 53 -j REDIRECT --to-ports 15053
-A SLUICE_OUTPUT_REST -p udp -m udp --dport 53 -j REDIRECT --to-ports 15053
-A SLUICE_OUTPUT_REST -d 127.0.0.1/32 -j RETURN
-A SLUICE_OUTPUT_REST -d 10.96.0.0/12 -j RETURN
-A SLUICE_OUTPUT_REST -p tcp -j REDIRECT --to-ports 15001
*mangle
-A PREROUTING -j SLUICE_PREROUTING
-A OUTPUT -j SLUICE_OUTPUT
-A SLUICE_OUTPUT -o eth1 -j RETURN
-A SLUICE_OUTPUT -o net+ -j RETURN
-A SLUICE_OUTPUT -o lo -p tcp -m mark --mark 0x539 -j RETURN
-A SLUICE_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 1337 -j MARK --set-xmark 0x53a/0xffffffff
-A SLUICE_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m owner --gid-owner 1337 -j MARK --set-xmark 0x53a/0xffffffff
-A SLUICE_OUTPUT -p tcp -m connmark --mark 0x539 -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A SLUICE_PREROUTING -i eth1 -j RETURN
-A SLUICE_PREROUTING -i net+ -j RETURN
-A SLUICE_PREROUTING -p tcp -m mark --mark 0x539 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A SLUICE_PREROUTING -p tcp -m mark --mark 0x539 -j RETURN
-A SLUICE_PREROUTING -s 127.0.0.6/32 -i lo -p tcp -j RETURN
-A SLUICE_PREROUTING -i lo -p tcp -m mark ! --mark 0x53a -j RETURN
-A SLUICE_PREROUTING -p tcp -m tcp --dport 15008 -j RETURN
-A SLUICE_PREROUTING -p tcp -m multiport --dports 9000:9001,15021 -j RETURN
-A SLUICE_PREROUTING -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j MARK --set-xmark 0x539/0xffffffff
-A SLUICE_PREROUTING -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN
-A SLUICE_PREROUTING -d 127.0.0.1/32 -p tcp -j RETURN
-A SLUICE_PREROUTING -p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff
*raw
-A PREROUTING -j SLUICE_PREROUTING
-A OUTPUT -j SLUICE_OUTPUT
-A SLUICE_OUTPUT -p udp -m udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1
-A SLUICE_OUTPUT -p udp -m udp --sport 15053 -m owner --uid-owner 1337 -j CT --zone 2
-A SLUICE_OUTPUT -p udp -m udp --dport 53 -m owner --gid-owner 1337 -j CT --zone 1
-A SLUICE_OUTPUT -p udp -m udp --sport 15053 -m owner --gid-owner 1337 -j CT --zone 2
-A SLUICE_OUTPUT -p udp -m udp --dport 53 -j CT --zone 2
-A SLUICE_PREROUTING -p udp -m udp --sport 53 -j CT --zone 1
`

// The kernel accepts some targets and matches only in certain tables and chains, or only with a
// match of the protocol, as package xt documents.
func TestKernelRestrictsTargetsAndMatchesToSomeChains(t *testing.T) {
	redirect, proxied := rules.RedirectTo{Port: 1}, rules.TProxyDrop{Port: 1}
	owner := []rules.Match{rules.MatchOwner{IDs: idRanges("0")}}
	for _, tc := range []struct {
		table, chain string
		rule         rules.Rule
		want         error // nil if the kernel accepts the rule
	}{
		{"nat", "PREROUTING", rule([]rules.Match{tcp}, redirect), nil},
		{"nat", "INPUT", rule([]rules.Match{tcp}, redirect), unix.EINVAL},
		{"nat", "PREROUTING", rule(nil, redirect), nil},
		{"mangle", "PREROUTING", rule([]rules.Match{tcp}, redirect), unix.EINVAL},
		{"nat", "OUTPUT", rule([]rules.Match{tcp}, rules.DNATPort{Port: 1}), nil},
		{"mangle", "OUTPUT", rule([]rules.Match{tcp}, rules.DNATPort{Port: 1}), unix.EINVAL},
		{"mangle", "PREROUTING", rule([]rules.Match{tcp}, proxied), nil},
		{"mangle", "PREROUTING", rule(nil, proxied), unix.EINVAL},
		{
			"mangle", "PREROUTING",
			rule([]rules.Match{rules.MatchProtocol{Not: true, Protocols: tcp.Protocols}}, proxied),
			unix.EINVAL,
		},
		{"mangle", "OUTPUT", rule([]rules.Match{tcp}, proxied), unix.EINVAL},
		{"nat", "PREROUTING", rule([]rules.Match{tcp}, proxied), unix.EINVAL},
		{"raw", "OUTPUT", rule(nil, rules.SetZone{Zone: 1}), nil},
		{"mangle", "OUTPUT", rule(nil, rules.SetZone{Zone: 1}), unix.EINVAL},
		{"mangle", "OUTPUT", rule(owner, rules.Drop), nil},
		{"mangle", "POSTROUTING", rule(owner, rules.Drop), nil},
		{"mangle", "PREROUTING", rule(owner, rules.Drop), unix.EINVAL},
		{"raw", "PREROUTING", rule(nil, rules.SaveMark{}), nil},
		{"nat", "OUTPUT", rule(nil, rules.SetMark{Value: 1, Mask: 1}), nil},
	} {
		for _, f := range istiotest.Families {
			ns := netnstest.New(t)
			table := must(xtables.Open(ns, f, tc.table))
			c := table.Chain(tc.chain)
			c.Rules = append(c.Rules, must(compat.EncodeForKernel(f, &tc.rule)))
			if err := xtables.Replace(ns, table); !errors.Is(err, tc.want) {
				t.Errorf("%s %s %s: %s: error %v, want %v", f, tc.table, tc.chain, &tc.rule, err,
					tc.want)
			}
		}
	}
}

// The kernel accepts the translation of each random ruleset that Translate does not reject.
func TestKernelAcceptsTheTranslationOfRandomRules(t *testing.T) {
	rulesets := rapid.Custom(func(t *rapid.T) rules.Ruleset { return generator{t}.ruleset() })
	accepted := 0
	for seed := range times(20, 500) {
		rs := rulesets.Example(seed)
		legacy, err := compat.Translate(rs)
		if err != nil {
			continue
		}
		ns := netnstest.New(t)
		installTables(t, ns, legacy.Tables)
		found, _ := kernelRules(t, ns)
		if diffs := rules.Compare(withCounters(legacy.Tables), found); len(diffs) > 0 {
			t.Fatalf("the kernel has other rules:\n%v\n%s", diffs, rs)
		}
		accepted++
	}
	if accepted == 0 {
		t.Error("Translate rejected all rulesets")
	}
}

// The oldest revisions of targets, which every kernel supports, decode to the same actions as the
// newest revisions.
func TestKernelAcceptsTheOldestRevisions(t *testing.T) {
	for _, f := range istiotest.Families {
		ns := netnstest.New(t)
		for table, action := range map[string]rules.Action{
			"raw": rules.SetZone{Zone: 3}, "nat": rules.DNATPort{Port: 5},
			"mangle": rules.RestoreMark{},
		} {
			r := rule([]rules.Match{tcp}, rules.Count{}, action)
			oldest := must(compat.EncodeRule(f, &r))
			into := must(xtables.Open(ns, f, table))
			into.Chain("OUTPUT").Rules = []xtables.Rule{oldest, must(compat.EncodeForKernel(f, &r))}
			if err := xtables.Replace(ns, into); err != nil {
				t.Fatal(err)
			}
			found := into.Chain("OUTPUT").Rules
			if old, newer := found[0].Target().Revision, found[1].Target().Revision; old >= newer {
				t.Errorf("%s: the newest revision is %d, want one after the oldest revision %d", action,
					newer, old)
			}
			for _, got := range compat.DecodeTable(into).Chain("OUTPUT").Rules {
				if got.String() != r.String() {
					t.Errorf("got %s, want %s", &got, &r)
				}
			}
		}
	}
}
