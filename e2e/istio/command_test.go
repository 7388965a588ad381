package istio_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
)

// Exit codes of rules diff.
const (
	equivalent = 0
	different  = 1
)

// TestDiffCommand checks the output of "rules diff" for rules that istio-iptables has programmed,
// with each way to specify them.
func TestDiffCommand(t *testing.T) {
	program(t, sluiceCommand)
	for _, row := range []struct {
		variant, configuration string
		flags                  []string
		want                   int
		wantOutput             string // part of the output
	}{
		{byLegacy, "usual/injected/v4/REDIRECT", nil, equivalent, ""},
		{byLegacy, "usual/injected/dual/REDIRECT", []string{"--strict"}, equivalent, ""},
		{byLegacy, "usual/injected/dual/TPROXY", nil, equivalent, "tproxy-tunnel-port"},
		{
			byLegacy, "usual/injected/dual/TPROXY",
			[]string{"--strict"},
			different,
			"tproxy-tunnel-port",
		},
		{
			byLegacy, "usual/injected/dual/TPROXY",
			[]string{"--strict", "--strict-istio"},
			equivalent, "",
		},
		{byLegacy, "everything/all/dual/TPROXY", []string{"--strict-istio"}, equivalent, ""},
		{
			byLegacy, "everything/all/v6/REDIRECT",
			[]string{"--istio-outbound-ports=444"},
			different, "444",
		},
		{byNative, "usual/injected/unflagged/REDIRECT", nil, different, "15006"},
		{byNative, "drop-invalid/set/v4/REDIRECT", nil, different, "invalid"},
	} {
		t.Run(fmt.Sprint(row.variant, "/", row.configuration, row.flags), func(t *testing.T) {
			t.Parallel()
			c := configurationNamed(t, row.configuration)
			ns, run := start(t, c, row.variant)
			for _, side := range sideFlags(t, c, row.variant, ns, run) {
				args := slices.Concat([]string{"diff"}, c.Args, row.flags, side)
				r, err := program(t, sluiceCommand).Run(ns, c, args...)
				if err != nil {
					t.Fatal(err)
				}
				if r.Status != row.want || !strings.Contains(r.Output, row.wantOutput) {
					t.Errorf("rules %s\nexit status %d, want %d and %q in\n%s%s",
						strings.Join(args, " "), r.Status, row.want, row.wantOutput,
						r.Output, r.Errors)
				}
			}
		})
	}
}

// sideFlags returns alternative flags that specify the rules of a run: by the namespace, and for
// iptables also by the log and by the output of iptables-save.
func sideFlags(
	t *testing.T, c istio.Configuration, variant string, ns *netns.NS, run istio.Result,
) [][]string {
	t.Helper()
	sides := [][]string{{"--netns=/proc/self/ns/net"}}
	if variant != byLegacy {
		return sides
	}
	var pod []string
	if c.Pod != istio.IPv6Pod {
		pod = append(pod, "--pod-ip="+testbed.PodIP4.String())
	}
	if c.Pod != istio.IPv4Pod {
		pod = append(pod, "--pod-ip="+testbed.PodIP6.String())
	}
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	saved := func(program string) string {
		text, err := istio.Save(ns, program)
		if err != nil {
			t.Fatal(err)
		}
		return file(program, text)
	}
	return append(sides,
		append([]string{"--istio-log=" + file("log", run.Output+run.Errors)}, pod...),
		append([]string{
			"--iptables-save=" + saved("iptables-legacy-save"),
			"--ip6tables-save=" + saved("ip6tables-legacy-save"),
		}, pod...))
}
