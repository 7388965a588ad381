package save_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// fixture returns the text of a file of testdata.
func fixture(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// parseLog parses a valid log.
func parseLog(t testing.TB, text string) save.IstioLog {
	t.Helper()
	l, err := save.ParseIstioLog("test.log", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// placedRules returns the rules as texts, each with its line, its table and its chain.
func placedRules(tables []rules.Table) []string {
	var list []string
	for _, t := range tables {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				list = append(list,
					fmt.Sprintf("%d: %s %s %s %s", r.Line, t.Family, t.Name, c.Name, r.String()))
			}
		}
	}
	return list
}

// appliedRules are the rules that the run in testdata/applied.log added.
var appliedRules = []string{
	`63: ip nat OUTPUT oifname "net1" counter return`,
	"64: ip nat OUTPUT counter jump ISTIO_REDIRECT",
	"65: ip nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :15001",
	"77: ip6 nat OUTPUT counter jump ISTIO_REDIRECT",
	"78: ip6 nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :15001",
}

func TestParseLogOfARunThatApplied(t *testing.T) {
	l := parseLog(t, fixture(t, "applied.log"))
	if diff := cmp.Diff(appliedRules, placedRules(l.Tables)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if l.DryRun || l.FromInput || l.Failure != "" || l.NoRedirect != nil {
		t.Errorf("dry run %t, from input %t, failure %q, error %v; want a successful run with its"+
			" final state", l.DryRun, l.FromInput, l.Failure, l.NoRedirect)
	}
	want := rules.DefaultRedirect()
	want.Mode = rules.ModeTProxy
	want.ProxyGIDs = rules.Singles[uint32](1337, 1339)
	want.InboundPorts.All = true
	want.InboundExcludePorts = rules.Singles[uint16](15090, 15021)
	want.OwnerGroupsExclude = rules.Singles[uint32](202)
	want.OutboundCIDRs.Prefixes = []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
	}
	want.OutboundExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	want.OutboundPorts = rules.Singles[uint16](443)
	want.OutboundExcludePorts = rules.Singles[uint16](5432)
	want.RerouteInterfaces = []rules.InterfaceName{{Name: "eth1"}}
	want.ExcludeInterfaces = []rules.InterfaceName{{Name: "net1"}}
	want.DropInvalid, want.IPv6, want.DNS.Capture = true, true, true
	want.DNS.Servers = []netip.Addr{
		netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11"),
		netip.MustParseAddr("fd00::a"),
	}
	if diff := cmp.Diff(&want, l.Redirect, compareOptions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseLogOfARunThatFailed(t *testing.T) {
	l := parseLog(t, fixture(t, "failed.log"))
	want := []string{"27: ip nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :12345"}
	if diff := cmp.Diff(want, placedRules(l.Tables)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if l.DryRun || l.FromInput || l.Failure != "exit status 1\niptables-restore: line 2 failed" {
		t.Errorf("dry run %t, from input %t, failure %q; want a failed run with its final state",
			l.DryRun, l.FromInput, l.Failure)
	}
	if l.Redirect != nil || !strings.Contains(l.NoRedirect.Error(),
		`test.log:6: PROXY_UID: "nobody-knows" is neither a numeric id`) ||
		!strings.Contains(l.NoRedirect.Error(),
			"test.log:4: the configuration does not contain PROXY_TUNNEL_PORT") {
		t.Errorf("redirect %v, error %v, want errors about PROXY_UID and PROXY_TUNNEL_PORT",
			l.Redirect, l.NoRedirect)
	}
}

// dryRunRules are the rules that the input in testdata/dry-run.log adds to empty tables.
var dryRunRules = []string{
	`12: ip nat OUTPUT oifname "net1" counter return`,
	"11: ip nat OUTPUT counter jump ISTIO_REDIRECT",
	"10: ip nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :15001",
	"17: ip6 nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :15001",
}

func TestParseLogOfADryRun(t *testing.T) {
	text := fixture(t, "dry-run.log")
	withoutBeginning := text[strings.Index(text, "info\tIstio"):]
	for name, text := range map[string]string{
		"complete": text,
		// The last entry also reports the dry run.
		"without its beginning": "\n" + withoutBeginning,
	} {
		t.Run(name, func(t *testing.T) {
			l := parseLog(t, text)
			if diff := cmp.Diff(dryRunRules, placedRules(l.Tables)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !l.DryRun || !l.FromInput || l.Failure != "" || l.Redirect != nil ||
				l.NoRedirect.Error() != "test.log: the log does not contain the configuration" {
				t.Errorf("dry run %t, from input %t, failure %q, redirect %v, error %v; want a dry"+
					" run without configuration", l.DryRun, l.FromInput, l.Failure, l.Redirect,
					l.NoRedirect)
			}
		})
	}
}

// kubectl can add prefixes to each line, and Istio's log has several formats.
func TestParseLogInAllForms(t *testing.T) {
	applied := fixture(t, "applied.log")
	eachLine := func(change func(string) string) string {
		var b strings.Builder
		for line := range strings.Lines(applied) {
			b.WriteString(change(line))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"with Windows line endings": strings.ReplaceAll(applied, "\n", "\r\n"),
		"with source positions": strings.ReplaceAll(applied, "\tinfo\t",
			"\tinfo\tinstall\tcapture/run.go:210\t"),
		"with kubectl's timestamp": eachLine(func(l string) string {
			return "2026-01-01T00:00:00.123456789+02:00 " + l
		}),
		"with kubectl's prefix": eachLine(func(l string) string {
			return "[pod/web-0/istio-init] " + l
		}),
		"with kubectl's prefix and timestamp": eachLine(func(l string) string {
			return "[pod/web-0/istio-init] 2026-01-01T00:00:00Z " + l
		}),
		"without its beginning": blankLinesBefore(applied, 41),
		"with debug output": applied +
			"2026-01-01T00:00:01.000000Z\tdebug\tCommand output: \n*nat\nnonsense\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := parseLog(t, text)
			if diff := cmp.Diff(appliedRules, placedRules(l.Tables)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// blankLinesBefore replaces each line before the given line with an empty line.
func blankLinesBefore(text string, line int) string {
	lines := strings.Split(text, "\n")
	return strings.Repeat("\n", line-1) + strings.Join(lines[line-1:], "\n")
}

// asJSON converts each entry to a line of JSON. level and message are the keys of the level and the
// message.
func asJSON(t *testing.T, text string, level, message string) string {
	var entries []map[string]string
	for line := range strings.Lines(text) {
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) == 3 {
			entries = append(entries, map[string]string{
				"time": fields[0], level: fields[1], message: fields[2],
			})
		} else {
			entries[len(entries)-1][message] += line
		}
	}
	var b strings.Builder
	for _, e := range entries {
		e[message] = strings.TrimSuffix(e[message], "\n")
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

// In JSON, a message is one line of the log. All rules of the message have the number of this line.
func TestParseLogInJSON(t *testing.T) {
	var want []string
	for _, r := range appliedRules {
		_, text, _ := strings.Cut(r, ": ")
		line := "7: "
		if strings.HasPrefix(text, "ip6") {
			line = "8: "
		}
		want = append(want, line+text)
	}
	for name, keys := range map[string][2]string{
		"Istio's": {"level", "msg"}, "for Stackdriver": {"severity", "message"},
	} {
		t.Run(name, func(t *testing.T) {
			text := asJSON(t, fixture(t, "applied.log"), keys[0], keys[1])
			l := parseLog(t, text)
			if diff := cmp.Diff(want, placedRules(l.Tables)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if l.Redirect == nil || l.Redirect.Mode != rules.ModeTProxy {
				t.Errorf("redirect %v, error %v, want mode TPROXY", l.Redirect, l.NoRedirect)
			}
			_, err := save.ParseIstioLog("f",
				strings.NewReader(strings.ReplaceAll(text, "--to-ports 15001", "--to-ports 99999")))
			if want := "f:7: \"99999\": want a port (0-65535)\nf:8: \"99999\": want a port (0-65535)"; err == nil || err.Error() != want {
				t.Errorf("got %v\nwant %s", err, want)
			}
		})
	}
}

func TestParseLogOfSeveralRuns(t *testing.T) {
	applied, failed, dry, native := fixture(t, "applied.log"), fixture(t, "failed.log"),
		fixture(t, "dry-run.log"), fixture(t, "native.log")
	const invalidOption = "error\tinvalid FORCE_IPTABLES_BINARY value \"foo\"\n"
	const invalidPrefix = "info\tFinal iptables state (IPv4):\n*nat\nCOMMIT\n\nerror\tnetip.ParsePrefix(\"10.0.0.0\"): no '/'\n"
	for _, tc := range []struct {
		name, text string
		rules      int
		dry        bool
		failure    string
		redirect   bool
	}{
		{"the last run applied rules", failed + dry + native + applied, len(appliedRules), false, "", true},
		{
			"the last run applied rules after a failed run with native nftables",
			upTo(native, "info\tIstio nft") + applied, len(appliedRules), false, "", true,
		},
		{
			"the last run failed", applied + failed, 1, false,
			"exit status 1\niptables-restore: line 2 failed", false,
		},
		{"the last run was a dry run", applied + dry, len(dryRunRules), true, "", false},
		{
			"the last run failed while parsing its options", applied + invalidOption,
			len(appliedRules), false, `invalid FORCE_IPTABLES_BINARY value "foo"`, true,
		},
		{
			"the last run failed while parsing its prefixes", applied + invalidPrefix, 0, false,
			`netip.ParsePrefix("10.0.0.0"): no '/'`, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := parseLog(t, tc.text)
			if n := len(placedRules(l.Tables)); n != tc.rules || l.DryRun != tc.dry ||
				l.Failure != tc.failure || (l.Redirect != nil) != tc.redirect {
				t.Errorf("%d rules, dry run %t, failure %q, redirect %v (error %v); want %d, %t, %q,"+
					" redirect %t", n, l.DryRun, l.Failure, l.Redirect, l.NoRedirect, tc.rules, tc.dry,
					tc.failure, tc.redirect)
			}
		})
	}
}

// If the log of a successful run ends before the final state, the rules are the rules of the input.
func TestParseLogThatEndsEarly(t *testing.T) {
	applied := fixture(t, "applied.log")
	l := parseLog(t, upTo(applied, "2026-01-01T00:00:00.000007Z"))
	want := []string{
		`47: ip nat OUTPUT oifname "net1" counter return`,
		"46: ip nat OUTPUT counter jump ISTIO_REDIRECT",
		"45: ip nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :15001",
		"53: ip6 nat OUTPUT counter jump ISTIO_REDIRECT",
		"52: ip6 nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :15001",
	}
	if diff := cmp.Diff(want, placedRules(l.Tables)); diff != "" || !l.FromInput || l.DryRun {
		t.Errorf("from input %t, want true; dry run %t, want false; -want +got:\n%s", l.FromInput,
			l.DryRun, diff)
	}
}

// If a log ends before the rules of an entry, ParseIstioLog does not return tables without these
// rules.
func TestParseLogThatEndsBeforeRules(t *testing.T) {
	for _, name := range []string{
		"applied.log", "dry-run.log", "istio-1.4.log", "istio-1.9.log", "istio-1.13.log",
		"istio-1.20.log",
	} {
		text := fixture(t, name)
		full := parseLog(t, text)
		parsed := 0
		for n := range text {
			if text[n] != '\n' {
				continue
			}
			l, err := save.ParseIstioLog("f", strings.NewReader(text[:n]))
			if err != nil {
				continue
			}
			parsed++
			for _, want := range full.Tables {
				// The rules of IPv6 may be missing if no earlier entry shows that they follow.
				mayBeMissing := want.Family == rules.IPv6 && !strings.Contains(text[:n], "ip6tables-") &&
					!strings.Contains(text[:n], "IPv6):")
				// Only the tables are compared, because the final state has other chains than the
				// input.
				found := slices.ContainsFunc(l.Tables, func(got rules.Table) bool {
					return got.Family == want.Family && got.Name == want.Name
				})
				if !found && !mayBeMissing {
					t.Errorf("%s up to byte %d, %q: no error and no table %s %s", name, n,
						text[max(n-30, 0):n], want.Family, want.Name)
				}
			}
		}
		if parsed == 0 {
			t.Errorf("%s: every truncated log is an error, want tables if only the end is missing",
				name)
		}
	}
}

// Lines of other containers do not belong to the entries of a run.
func TestParseLogWithLinesOfOtherContainers(t *testing.T) {
	lines := func(name string) []string {
		return strings.SplitAfter(strings.TrimSpace(fixture(t, name))+"\n", "\n")
	}
	applied, dry := lines("applied.log"), lines("dry-run.log")
	const otherLine = "2026-01-01T00:00:00.000007Z\tinfo\tEnvoy proxy is ready\n"
	interleaved := new(strings.Builder)
	for i, line := range applied[:len(applied)-1] {
		if i < len(dry)-1 {
			interleaved.WriteString("[pod/other/istio-init] " + dry[i])
		}
		interleaved.WriteString("[pod/web/istio-init] " + line)
		interleaved.WriteString("[pod/web/istio-proxy] " + otherLine)
	}
	l := parseLog(t, interleaved.String())
	n := len(placedRules(l.Tables))
	if n != len(appliedRules) || l.DryRun || l.FromInput || l.Redirect == nil {
		t.Errorf("%d rules, dry run %t, from input %t, redirect %v (error %v); want the %d rules and"+
			" the parameters of applied.log", n, l.DryRun, l.FromInput, l.Redirect, l.NoRedirect,
			len(appliedRules))
	}

	// Without prefixes, the line of the other container begins another entry.
	text := strings.Replace(strings.Join(applied, ""), "state (IPv4):\n", "state (IPv4):\n"+otherLine,
		1)
	_, err := save.ParseIstioLog("f", strings.NewReader(text))
	if err == nil || !strings.Contains(err.Error(), "want rules after it") {
		t.Errorf("error %v, want an error about missing rules after a line of another container", err)
	}
}

func TestParseLogOfARunThatOnlyRemovedRules(t *testing.T) {
	l := parseLog(t,
		"info\tIstio config:\nCLEANUP_ONLY=true\n\ninfo\tFinal iptables state (IPv4):\n*nat\nCOMMIT\n")
	if len(l.Tables) != 1 || l.Redirect != nil ||
		l.NoRedirect.Error() != "test.log:1: the run only removed rules" {
		t.Errorf("%d tables, redirect %v, error %v; want 1 table and an error about the removal",
			len(l.Tables), l.Redirect, l.NoRedirect)
	}
}

// ParseIstioLog returns the rules of a log even if its parameters are not usable.
func TestParseLogWithoutUsableParameters(t *testing.T) {
	applied := fixture(t, "applied.log")
	for _, tc := range []struct {
		from, to string
		want     string // empty if the parameters are usable
	}{
		{"PROXY_PORT=15001", "PROXY_PORT=0", `test.log:8: PROXY_PORT: "0" is not a port (1-65535)`},
		{
			"[10.96.0.10 10.96.0.11]", "[dns]",
			`test.log:30: DNS_SERVERS: "dns" is not an IP address`,
		},
		{"INBOUND_TPROXY_MARK=1337", "INBOUND_TPROXY_MARK=1338", "test.log:7: TProxyMark: "},
		{"DUAL_STACK=true", `{"not": JSON}`, ""},
	} {
		l := parseLog(t, strings.Replace(applied, tc.from, tc.to, 1))
		if diff := cmp.Diff(appliedRules, placedRules(l.Tables)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.to, diff)
		}
		if tc.want == "" {
			if l.Redirect == nil {
				t.Errorf("%s: error %v, want usable parameters", tc.to, l.NoRedirect)
			}
			continue
		}
		if l.Redirect != nil || !strings.HasPrefix(fmt.Sprint(l.NoRedirect), tc.want) {
			t.Errorf("%s: parameters %v, error %v, want %s", tc.to, l.Redirect, l.NoRedirect, tc.want)
		}
	}
}

func TestParseLogErrors(t *testing.T) {
	applied, failed, native := fixture(t, "applied.log"), fixture(t, "failed.log"),
		fixture(t, "native.log")
	const wantEntry = "an entry of the log of istio-init, as kubectl logs POD -c istio-init prints it"
	const wantIPTables = "want a run with iptables: the log of a run with native nftables contains no readable rules; read the rules of the namespace"
	for _, tc := range []struct{ name, text, want string }{
		{"an empty text", "", "f:1:1: the line ends: want " + wantEntry +
			"; this looks like an empty file"},
		{"rules without a log", "*nat\nCOMMIT\n", `f:1:1: "*nat": want ` + wantEntry +
			"; this looks like the output of iptables-save"},
		{
			"the log of another container", "2026-01-01T00:00:00Z\tinfo\tEnvoy proxy is ready\n",
			`f:1:27: "Envoy proxy is ready": want the log of istio-init, as kubectl logs POD -c istio-init prints it: this is another log`,
		},
		{
			"native nftables", native,
			`f:1:6: "native nftables enabled, using nft rules for traffic redirection.": ` + wantIPTables,
		},
		{
			"native nftables in the last run", applied + native,
			`f:83:6: "native nftables enabled, using nft rules for traffic redirection.": ` +
				wantIPTables,
		},
		{
			"a failure before any rules", "error\tinvalid FORCE_IPTABLES_BINARY value \"foo\"\n",
			`f:1:7: "invalid FORCE_IPTABLES_BINARY value \"foo\"": want a run that applied rules: this run failed before it applied any`,
		},
		{
			"an end before any rules", upTo(applied, "2026-01-01T00:00:00.000005Z"),
			`f:41:34: "Applying iptables chains and rules": want rules after it: the log ends before it shows any`,
		},
		{
			"an end before the rules of IPv6", upTo(applied, "2026-01-01T00:00:00.000006Z"),
			`f:42:34: "Running iptables restore with: iptables-nft-restore and the following input:": want the rules of IPv6 after it, because the run captures IPv6`,
		},
		{
			"a failure without the final state",
			upTo(failed, "info\tFinal") + "error\texit status 1\n",
			`f:19:7: "exit status 1": want the final state before it, because only this shows the rules after a failed run`,
		},
		{
			"a state cut short", upTo(failed, "COMMIT\n# Comp"),
			`f:27:54: the line ends: want COMMIT of table nat`,
		},
		{
			"an error after kubectl's timestamp",
			"2026-01-01T00:00:00Z info\tFinal iptables state (IPv4):\n2026-01-01T00:00:00Z *nat\n" +
				"2026-01-01T00:00:00Z -A OUTPUT -j\n2026-01-01T00:00:00Z COMMIT",
			"f:3:34: the line ends: want a target or a chain",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := save.ParseIstioLog("f", strings.NewReader(tc.text))
			if err == nil || err.Error() != tc.want {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
		})
	}
}

// upTo returns the text before the first occurrence of end.
func upTo(text, end string) string { return text[:strings.Index(text, end)] }
