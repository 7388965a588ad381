package compat_test

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestThisKernelSupportsIPTablesLegacy(t *testing.T) {
	netnstest.RequireRoot(t)
	support, err := compat.ProbeLegacy(compiled(t, tproxy, dual, allDNS, exclusions, dropInvalid))
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, s := range support {
		tested[s.Feature.Name] = true
		if s.Err != nil {
			t.Error(s.Err)
		}
	}
	for _, want := range []string{
		"iptables-legacy ip raw", "iptables-legacy ip6 nat",
		"iptables-legacy's match owner of ip6, revision 1",
		"iptables-legacy's target TPROXY of ip, revision 1",
		"iptables-legacy's target REDIRECT of ip6, revision 0",
	} {
		if !tested[want] {
			t.Errorf("probed features %v, want also %s", tested, want)
		}
	}
}

// ProbeLegacy probes only the features that the rules need. Other missing features do not matter.
func TestProbeChecksTheFeaturesThatTheRulesNeed(t *testing.T) {
	netnstest.RequireRoot(t)
	support, err := compat.ProbeLegacy(compiled(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range support {
		for _, other := range []string{"ip6", "mangle", "raw", "TPROXY"} {
			if strings.Contains(s.Feature.Name, other) {
				t.Errorf("probed %s, which the rules do not need", s.Feature.Name)
			}
		}
	}
}

func TestProbeFindsMissingKernelFeatures(t *testing.T) {
	ns := netnstest.New(t)
	for _, f := range []xtables.Feature{
		{Family: rules.IPv4, Kind: xtables.KindTable, Name: "no-such"},
		{Family: rules.IPv4, Kind: xtables.KindMatch, Name: "owner", Revision: 99},
		{Family: rules.IPv6, Kind: xtables.KindMatch, Name: "no-such"},
		{Family: rules.IPv6, Kind: xtables.KindTarget, Name: "REDIRECT", Revision: 99},
	} {
		if err := xtables.Probe(ns, f); !errors.Is(err, unix.ENOENT) &&
			!errors.Is(err, unix.EPROTONOSUPPORT) {
			t.Errorf("%s: error %v, want an error about a missing feature", f, err)
		}
	}
}

func TestFeatureDescriptionNamesOptionModuleAndVersion(t *testing.T) {
	for _, tc := range []struct {
		feature xtables.Feature
		want    string
	}{
		{
			xtables.Feature{Family: rules.IPv4, Name: "nat"},
			"CONFIG_IP_NF_NAT, module iptable_nat 2.6.39",
		},
		{
			xtables.Feature{Family: rules.IPv6, Name: "nat"},
			"CONFIG_IP6_NF_NAT, module ip6table_nat 3.7",
		},
		{
			xtables.Feature{Family: rules.IPv4, Kind: xtables.KindMatch, Name: "owner"},
			"CONFIG_NETFILTER_XT_MATCH_OWNER, module xt_owner 2.6.39",
		},
		{
			xtables.Feature{Family: rules.IPv4, Kind: xtables.KindMatch, Name: "mark"},
			"CONFIG_NETFILTER_XT_MARK, module xt_mark 2.6.39",
		},
		{
			xtables.Feature{Family: rules.IPv4, Kind: xtables.KindTarget, Name: "MARK"},
			"CONFIG_NETFILTER_XT_MARK, module xt_mark 2.6.39",
		},
		{
			xtables.Feature{Family: rules.IPv4, Kind: xtables.KindMatch, Name: "tcp"},
			"CONFIG_NETFILTER_XTABLES, module xt_tcpudp 2.6.39",
		},
		{
			xtables.Feature{Family: rules.IPv4, Kind: xtables.KindTarget, Name: "TPROXY"},
			"CONFIG_NETFILTER_XT_TARGET_TPROXY, module xt_TPROXY 2.6.39",
		},
		{
			xtables.Feature{Family: rules.IPv4, Kind: xtables.KindTarget, Name: "CT"},
			"CONFIG_NETFILTER_XT_TARGET_CT, module xt_CT 3.4",
		},
	} {
		if d := compat.DescribeFeature(tc.feature); d.Option+" "+d.Since != tc.want {
			t.Errorf("%s: %s %s, want %s", tc.feature, d.Option, d.Since, tc.want)
		}
	}
}

// TestRejectionNamesTheMissingKernelFeature runs on a kernel that seems to have no matches.
func TestRejectionNamesTheMissingKernelFeature(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	got := start(t, ns, "apply without matches").line(t)
	for _, want := range []string{
		"iptables-legacy ip mangle", "does not support iptables-legacy's match",
		"CONFIG_NETFILTER_XT_MATCH", "not supported: true",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the process prints %q, want %q in it", got, want)
		}
	}
	wantNoRules(t, ns)
}

// applyWithoutMatches makes the kernel reject every table, and report that it has no matches.
func applyWithoutMatches(ns *netns.NS, _ *bufio.Reader) error {
	const replace, revisionMatch = 64, 66
	refuse(unix.SYS_SETSOCKOPT, -1, 2, replace, unix.ENOENT)
	refuse(unix.SYS_GETSOCKOPT, -1, 2, revisionMatch, unix.ENOENT)
	_, err := compat.Backends()[1].Apply(ns, rules.MustCompile(sidecar(tproxy)), compat.Snapshot{})
	fmt.Printf("%s; not supported: %v\n", strings.ReplaceAll(fmt.Sprint(err), "\n", "; "),
		compat.IsNotSupported(err))
	return nil
}

// TestAutoKeepsNFTAfterAnUnrelatedError checks that the backend auto takes ENOENT for a missing
// feature only if an added chain or rule needs the feature. Here another message was rejected.
func TestAutoKeepsNFTAfterAnUnrelatedError(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("apply: %w", &nft.KernelError{
		Message: "delete chain inet sluice a", Errno: unix.ENOENT,
	})
	if compat.IsMissingFeature(err) {
		t.Errorf("the kernel lacks nf_tables according to the error %v", err)
	}
}
