package rules_test

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// An istioCase is one run of istio-iptables: its arguments, and the resulting rules in the
// namespace.
type istioCase struct {
	name string
	// args contains the values of flags, and of environment variables, which have names in upper
	// case. Values with names that begin with _ describe the pod.
	args     map[string]string
	redirect rules.Redirect
	ruleset  rules.Ruleset
}

// goldenDir returns the directory of the recorded runs, with a subdirectory for each run. The
// directory is not part of the repository. Without it the test is skipped.
func goldenDir(t testing.TB) string {
	dir := cmp.Or(os.Getenv("SLUICE_GOLDEN"), filepath.Join("..", "..", "shared", "golden"))
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no recorded runs of istio-iptables: set SLUICE_GOLDEN to their directory (%v)", err)
	}
	return dir
}

// istioCases reads the successful runs.
func istioCases(t testing.TB) []istioCase {
	dir := goldenDir(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var cases []istioCase
	for _, e := range entries {
		var results map[string][]any
		if !e.IsDir() || !readJSON(t, filepath.Join(dir, e.Name(), "rc.json"), &results) ||
			results["legacy"][0] != 0.0 {
			continue
		}
		cases = append(cases, readCase(t, filepath.Join(dir, e.Name())))
	}
	if len(cases) < 40 {
		t.Fatalf("%d successful runs in %s, want at least 40", len(cases), dir)
	}
	return cases
}

func readCase(t testing.TB, dir string) istioCase {
	c := istioCase{name: filepath.Base(dir), args: map[string]string{}}
	var args map[string]any
	readJSON(t, filepath.Join(dir, "args.json"), &args)
	for name, value := range args {
		switch v := value.(type) {
		case string:
			c.args[name] = v
		case bool:
			c.args[name] = strconv.FormatBool(v)
		}
	}
	c.redirect = c.parameters()
	for _, saved := range []struct {
		file   string
		family rules.Family
	}{{"legacy-v4.save", rules.IPv4}, {"legacy-v6.save", rules.IPv6}} {
		tables, err := save.Parse(saved.family, saved.file,
			strings.NewReader(readText(t, filepath.Join(dir, saved.file))))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.ruleset.Tables = append(c.ruleset.Tables, tables...)
	}
	c.ruleset.Routing = readRouting(readText(t, filepath.Join(dir, "iprule.txt")))
	return c
}

// parameters derives the parameters from the arguments as istio-iptables does.
func (c istioCase) parameters() rules.Redirect {
	r := rules.DefaultRedirect()
	lookup := func(name string) (uint32, error) { return map[string]uint32{"daemon": 1}[name], nil }
	// Every mode but TPROXY means REDIRECT. The outbound port has no environment variable.
	if c.setting("istio-inbound-interception-mode", "") == "TPROXY" {
		r.Mode = rules.ModeTProxy
	}
	r.ProxyPort = must(rules.ParsePort(cmp.Or(c.args["envoy-port"], "15001")))
	r.InboundCapturePort = must(rules.ParsePort(c.setting("inbound-capture-port", "15006")))
	r.TunnelPort = must(rules.ParsePort(c.setting("inbound-tunnel-port", "15008")))
	r.ProxyUIDs = must(rules.ParseIDs(c.setting("proxy-uid", "1337"), lookup))
	r.ProxyGIDs = must(rules.ParseIDs(c.setting("proxy-gid", c.setting("proxy-uid", "1337")),
		lookup))
	r.TProxyMark = must(rules.ParseMark(c.setting("istio-inbound-tproxy-mark", "1337")))
	r.TProxyRouteTable = must(rules.ParseMark(c.setting("istio-inbound-tproxy-route-table", "133")))
	r.InboundPorts = must(rules.ParsePortSelection(c.setting("istio-inbound-ports", "")))
	r.InboundExcludePorts = portsAsGiven(c.setting("istio-local-exclude-ports", ""))
	r.OutboundCIDRs = prefixSelection(c.setting("istio-service-cidr", ""))
	r.OutboundExcludeCIDRs = must(rules.ParsePrefixes(c.setting("istio-service-exclude-cidr", "")))
	r.OutboundPorts = portsAsGiven(c.setting("istio-outbound-ports", ""))
	r.OutboundExcludePorts = portsAsGiven(c.setting("istio-local-outbound-ports-exclude", ""))
	r.OwnerGroups = must(rules.ParseGroupSelection(c.setting("istio-outbound-owner-groups", "*"),
		lookup))
	r.OwnerGroupsExclude = must(rules.ParseIDs(c.setting("istio-outbound-owner-groups-exclude", ""),
		lookup))
	r.ExcludeInterfaces = interfaceNames(c.setting("istio-exclude-interfaces", ""))
	r.RerouteInterfaces = interfaceNames(c.setting("kube-virt-interfaces", ""))
	r.LoopbackCIDR = must(rules.ParseLoopbackCIDR(c.setting("istio-outbound-ipv4-loopback-cidr",
		"127.0.0.1/32")))
	r.DropInvalid = c.enabled("drop-invalid") || c.enabled("invalid-drop")
	r.DNS.Capture = c.enabled("redirect-dns") || c.enabled("istio-meta-dns-capture")
	r.DNS.All = c.enabled("capture-all-dns")
	if r.DNS.Capture && !r.DNS.All && c.args["_nameservers"] != "" {
		for server := range strings.SplitSeq(c.args["_nameservers"], ",") {
			r.DNS.Servers = append(r.DNS.Servers, must(rules.ParseServer(server)))
		}
	}
	// Without --dual-stack the first address decides whether IPv6 is captured. In the dual-stack
	// pods it is an IPv4 address.
	r.IPv6 = c.args["_family"] == "v6" || c.args["_family"] == "dual" && (c.enabled("dual-stack") ||
		c.enabled("istio-dual-stack"))
	return r
}

// portsAsGiven parses a list of ports, and keeps the order and duplicates as Istio does.
func portsAsGiven(text string) []rules.PortRange {
	var input []rules.PortRange
	for element := range strings.SplitSeq(text, ",") {
		input = append(input, ports(element)...)
	}
	return input
}

// setting returns a flag, the environment variable with the flag's name, or the default.
func (c istioCase) setting(flag, byDefault string) string {
	if v, ok := c.args[flag]; ok {
		return v
	}
	if v, ok := c.args[strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))]; ok {
		return v
	}
	return byDefault
}

// enabled parses a boolean. An invalid value is false, as in Istio.
func (c istioCase) enabled(flag string) bool {
	b, err := rules.ParseBool(c.setting(flag, "false"))
	return err == nil && b
}

// readRouting parses the policy rules and the addresses of lo from the output of the ip command.
// The kernel chose the priorities.
func readRouting(text string) rules.Routing {
	var r rules.Routing
	family := rules.IPv4
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "# ip -6"):
			family = rules.IPv6
		case strings.Contains(line, " fwmark "):
			priority := must(strconv.Atoi(strings.TrimSuffix(words[0], ":")))
			mark, table := must(rules.ParseMark(words[4])), must(rules.ParseMark(words[6]))
			r.Policies = append(r.Policies, rules.PolicyRoute{
				Family: family, Mark: mark, Table: table, Priority: priority,
			})
		case strings.HasPrefix(line, "lo ") && slices.Contains(words, "::6/128"):
			r.LoopbackAddrs = []netip.Addr{rules.PassthroughIPv6()}
		}
	}
	return r
}

func readText(t testing.TB, path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// readJSON reads the file into the value, and reports whether the file exists.
func readJSON(t testing.TB, path string, value any) bool {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return false
	}
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return true
}
