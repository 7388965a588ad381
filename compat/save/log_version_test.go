package save_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// rulesOf returns the rules of one family as texts, each with its table and its chain.
func rulesOf(tables []rules.Table, family rules.Family) []string {
	var list []string
	for _, r := range placedRules(tables) {
		if _, text, _ := strings.Cut(r, ": "); strings.HasPrefix(text, family.String()+" ") {
			list = append(list, text)
		}
	}
	return list
}

// TestParseLogOfOlderVersions parses logs in the formats of older Istio versions. It also verifies
// which parameters the logs lack.
func TestParseLogOfOlderVersions(t *testing.T) {
	defaults := rules.DefaultRedirect()
	defaults.InboundPorts.All, defaults.OutboundCIDRs.All = true, true
	defaults.InboundExcludePorts = rules.Singles[uint16](15090, 15021, 15020)
	with := func(change func(*rules.Redirect)) rules.Redirect {
		r := defaults
		change(&r)
		return r
	}
	for _, tc := range []struct {
		version  string
		want     rules.Redirect
		unstated string
		tunnel   bool // the log contains a rule for the tunnel port
		ipv6     int  // number of IPv6 rules
	}{
		{
			"1.4", with(func(r *rules.Redirect) {
				r.InboundExcludePorts = rules.Singles[uint16](15020)
			}),
			"PROXY_TUNNEL_PORT PROXY_GID OUTBOUND_PORTS_INCLUDE OUTBOUND_OWNER_GROUPS_INCLUDE OUTBOUND_OWNER_GROUPS_EXCLUDE " +
				"EXCLUDE_INTERFACES DROP_INVALID DNS_SERVERS DNS_CAPTURE CAPTURE_ALL_DNS HOST_IPV4_LOOPBACK_CIDR",
			false, 3,
		},
		{
			"1.9", with(func(r *rules.Redirect) {
				r.DNS.Capture, r.DNS.Servers = true, []netip.Addr{netip.MustParseAddr("10.96.0.10")}
			}),
			"OUTBOUND_OWNER_GROUPS_INCLUDE OUTBOUND_OWNER_GROUPS_EXCLUDE EXCLUDE_INTERFACES DROP_INVALID DNS_CAPTURE CAPTURE_ALL_DNS " +
				"HOST_IPV4_LOOPBACK_CIDR",
			true, 0,
		},
		{
			"1.13", defaults,
			"OUTBOUND_OWNER_GROUPS_INCLUDE OUTBOUND_OWNER_GROUPS_EXCLUDE HOST_IPV4_LOOPBACK_CIDR",
			true, 0,
		},
		{"1.20", with(func(r *rules.Redirect) {
			r.IPv6 = true
		}), "HOST_IPV4_LOOPBACK_CIDR", true, 8},
	} {
		t.Run(tc.version, func(t *testing.T) {
			l := parseLog(t, fixture(t, "istio-"+tc.version+".log"))
			if l.NoRedirect != nil {
				t.Fatal(l.NoRedirect)
			}
			if diff := cmp.Diff(&tc.want, l.Redirect, compareOptions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := strings.Join(l.Unstated, " "); got != tc.unstated {
				t.Errorf("unstated %s, want %s", got, tc.unstated)
			}
			want := []string{
				"ip nat PREROUTING meta l4proto tcp counter jump ISTIO_INBOUND",
				"ip nat OUTPUT meta l4proto tcp counter jump ISTIO_OUTPUT",
				"ip nat ISTIO_IN_REDIRECT meta l4proto tcp counter redirect to :15006",
			}
			if tc.tunnel {
				want = append(want, "ip nat ISTIO_INBOUND tcp dport 15008 counter return")
			}
			want = append(want,
				"ip nat ISTIO_INBOUND meta l4proto tcp counter jump ISTIO_IN_REDIRECT",
				"ip nat ISTIO_OUTPUT meta skuid 1337 counter return",
				"ip nat ISTIO_OUTPUT counter jump ISTIO_REDIRECT",
				"ip nat ISTIO_REDIRECT meta l4proto tcp counter redirect to :15001",
			)
			if diff := cmp.Diff(want, rulesOf(l.Tables, rules.IPv4)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := rulesOf(l.Tables, rules.IPv6); len(got) != tc.ipv6 || l.FromInput ||
				l.DryRun || l.Failure != "" {
				t.Errorf("IPv6 rules %q, from input %t, dry run %t, failure %q; want %d IPv6 rules"+
					" of a successful run with its final state", got, l.FromInput, l.DryRun, l.Failure,
					tc.ipv6)
			}
		})
	}
}

// The latest version logs all parameters except HOST_IPV4_LOOPBACK_CIDR.
func TestParseLogReportsUnstatedParameters(t *testing.T) {
	l := parseLog(t, fixture(t, "applied.log"))
	if diff := cmp.Diff([]string{"HOST_IPV4_LOOPBACK_CIDR"}, l.Unstated); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if l := parseLog(t, fixture(t, "failed.log")); l.Unstated != nil || l.NoRedirect == nil {
		t.Errorf("unstated %q, error %v, want no names if the parameters are invalid", l.Unstated,
			l.NoRedirect)
	}
}

// The lines of a log of an older version may be in the format of a container runtime, or copied
// from a terminal.
func TestParseOlderLogsInAllForms(t *testing.T) {
	docker := func(line string) string {
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(
			"{\"log\":%s,\"stream\":\"stdout\",\"time\":\"2020-04-30T20:14:58.42361283Z\"}\n", text)
	}
	for name, change := range map[string]func(string) string{
		"in containerd's format": func(l string) string {
			return "2020-04-30T20:14:58.42361283Z stdout F " + l
		},
		"in Docker's format":       docker,
		"with kubectl's timestamp": func(l string) string { return "2020-04-30T20:14:58Z " + l },
		"with Windows line endings": func(l string) string {
			return strings.TrimSuffix(l, "\n") + "\r\n"
		},
		"copied from a terminal": func(l string) string {
			return strings.ReplaceAll(l, "\t", "     ")
		},
		"indented as in a GitHub issue": func(l string) string {
			return "  " + strings.ReplaceAll(l, "\t", "     ")
		},
	} {
		for _, version := range []string{"1.4", "1.9", "1.13", "1.20"} {
			if strings.HasPrefix(name, "indented") && (version == "1.4" || version == "1.9") {
				continue // the beginning of an indented entry is not recognizable
			}
			text := fixture(t, "istio-"+version+".log")
			want := parseLog(t, text)
			var changed strings.Builder
			for line := range strings.Lines(text) {
				changed.WriteString(change(line))
			}
			got := parseLog(t, changed.String())
			if diff := cmp.Diff(placedRules(want.Tables), placedRules(got.Tables)); diff != "" {
				t.Errorf("%s, version %s: -want +got:\n%s", name, version, diff)
			}
			if diff := cmp.Diff(want.Redirect, got.Redirect, compareOptions); diff != "" {
				t.Errorf("%s, version %s: -want +got:\n%s", name, version, diff)
			}
		}
	}
}

func TestParseOlderLogsOfFailedOrSeveralRuns(t *testing.T) {
	log4, log9, log13 := fixture(t, "istio-1.4.log"), fixture(t, "istio-1.9.log"),
		fixture(t, "istio-1.13.log")
	restored := upTo(log9, "iptables-save \n")
	saved := log9[len(restored):]
	const panicked = "panic: exit status 1\n\ngoroutine 1 [running]:\nmain.main()\n"
	const failedRestore = "Failed to execute: iptables-restore --noflush /tmp/x, exit status 1\n"
	for _, tc := range []struct {
		name, text string
		rules      int
		fromInput  bool
		failure    string
		want       string // suffix of the error
	}{
		{
			"a failure with a final state", log9 + panicked, 8, false, "panic: exit status 1",
			"",
		},
		{"no final state", restored, 8, true, "", ""},
		{
			"a failure without a state", restored + failedRestore, 0, false, "",
			"want the final state before it, because only this shows the rules after a failed run",
		},
		{
			"a state before the rules were added",
			upTo(log9, "Writing") + saved + restored[strings.Index(restored, "Writing"):], 8, true,
			"", "",
		},
		{"a failed run of an old version, then a newer one", log9 + panicked + log13, 8, false, "", ""},
		{
			"a run of the newest version at the end", log4 + fixture(t, "applied.log"),
			len(appliedRules), false, "", "",
		},
		{
			"a state printed by another command",
			log13 + "info\tRunning command: ip6tables -t nat -L\ninfo\tCommand output: \nnonsense\n",
			8, false, "", "",
		},
		{
			"only the environment", upTo(log9, "Variables"), 0, false, "",
			"want rules after it: the log ends before it shows any",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := save.ParseIstioLog("f", strings.NewReader(tc.text))
			if tc.want != "" {
				if err == nil || !strings.HasSuffix(err.Error(), tc.want) {
					t.Errorf("error %v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := len(placedRules(l.Tables)); n != tc.rules || l.FromInput != tc.fromInput ||
				l.Failure != tc.failure {
				t.Errorf("%d rules, from input %t, failure %q; want %d, %t, %q", n, l.FromInput,
					l.Failure, tc.rules, tc.fromInput, tc.failure)
			}
		})
	}
}
