package nft

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares a text with the file testdata/NAME.golden, or writes the file with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (to write it: go test -run '%s' -update)", err, t.Name())
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, -want +got:\n%s", file, diff)
	}
}

// examples contains the parameters of named rulesets. The golden files contain these rulesets.
var examples = []struct {
	name   string
	change func(r *rules.Redirect)
}{
	{"nothing-captured", func(*rules.Redirect) {}},
	{"sidecar-ipv4", func(r *rules.Redirect) {
		captureAll(r)
	}},
	{"sidecar-dual-dns", func(r *rules.Redirect) {
		captureAll(r)
		r.IPv6 = true
		r.DNS = rules.DNS{Capture: true, Servers: []netip.Addr{
			netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11"),
			netip.MustParseAddr("fd00:96::10"),
		}}
	}},
	{"tproxy-dual", func(r *rules.Redirect) {
		captureAll(r)
		r.Mode, r.IPv6 = rules.ModeTProxy, true
	}},
	{"tproxy-keep-established", func(r *rules.Redirect) {
		captureAll(r)
		r.Mode, r.KeepEstablished = rules.ModeTProxy, true
		r.InboundExcludePorts = nil
		r.InboundPorts = rules.PortSelection{Ports: portList("80,8000-8999")}
	}},
	{"exclusions-dual", func(r *rules.Redirect) {
		captureAll(r)
		r.IPv6, r.DropInvalid = true, true
		r.OutboundExcludeCIDRs = prefixList("10.0.0.0/8", "192.168.0.0/16", "255.0.0.0/8",
			"0.0.0.0/16", "10.128.0.0/9", "fd00::/8",
			"ff00::/8", "::ffff:172.16.0.0/108")
		r.OutboundExcludePorts = portList("53,100-200,8443")
		r.ProxyUIDs = []rules.IDRange{rules.Single[uint32](1337), {First: 2000, Last: 2005}}
		r.ProxyGIDs = rules.Singles[uint32](1337, 1338)
		r.ExcludeInterfaces = interfaceList("eth1,net2,tap+")
	}},
	{"lists-and-groups", func(r *rules.Redirect) {
		r.IPv6 = true
		r.InboundPorts.Ports = portList("80,443,8080")
		r.OutboundCIDRs.Prefixes = prefixList("10.96.0.0/12", "172.16.0.0/12", "fd00:96::/108")
		r.OutboundPorts = portList("5432")
		r.OwnerGroups = rules.GroupSelection{IDs: rules.Singles[uint32](202, 203)}
		r.RerouteInterfaces = interfaceList("k6t-eth0")
	}},
	{"counters", func(r *rules.Redirect) {
		captureAll(r)
		r.Counters = true
		r.OutboundExcludeCIDRs = prefixList("10.0.0.0/8", "192.168.0.0/16")
	}},
	{"strict-istio", func(r *rules.Redirect) {
		captureAll(r)
		r.StrictIstio()
		r.DNS = rules.DNS{Capture: true, All: true}
		r.OwnerGroupsExclude = rules.Singles[uint32](202)
	}},
}

// captureAll captures all destinations, and all inbound ports except the ports of the agent and
// Envoy.
func captureAll(r *rules.Redirect) {
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	r.InboundExcludePorts = portList("15020,15021,15090")
}

// compileWith returns the ruleset of the default parameters after a change.
func compileWith(change func(r *rules.Redirect)) rules.Ruleset {
	r := rules.DefaultRedirect()
	change(&r)
	return rules.MustCompile(r)
}

// example returns the ruleset of an example.
func example(name string) rules.Ruleset {
	for _, e := range examples {
		if e.name == name {
			return compileWith(e.change)
		}
	}
	panic("no example " + name)
}

func portList(text string) []rules.PortRange {
	list, err := rules.ParsePorts(text)
	if err != nil {
		panic(err)
	}
	return list
}

func prefixList(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func interfaceList(text string) []rules.InterfaceName {
	list, err := rules.ParseInterfaces(text)
	if err != nil {
		panic(err)
	}
	return list
}
