package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// The findings about a pod in ambient mode name the mark, routing table and packets of ambient
// mode.
func TestDiagnoseAmbient(t *testing.T) {
	sluiceRule := route.Rule{
		Family: rules.IPv4, Priority: rules.PolicyPriority, Mark: rules.AmbientMark,
		Mask: rules.AmbientMarkMask, Table: rules.AmbientRouteTable, Text: "ours",
	}
	other := sluiceRule
	other.Priority, other.Table, other.Text = 100, 77, "other"
	redirectsElsewhere := redirectHTTP
	redirectsElsewhere.Actions = []rules.Action{rules.RedirectTo{Port: 4000}}
	for _, tc := range []struct {
		name     string
		change   func(*Facts)
		severity Severity
		want     string // empty for no problem and no warning
	}{
		{
			"a healthy pod", func(f *Facts) { f.PolicyRules = append(f.PolicyRules, sluiceRule) },
			"", "",
		},
		{
			"another rule for the mark is first",
			func(f *Facts) { f.PolicyRules = append(f.PolicyRules, other) },
			Problem, "packets with ambient mode's mark 0x111 match another rule first: other",
		},
		{
			"a foreign route in the table", func(f *Facts) {
				f.Routes = []route.Route{{
					Table: rules.AmbientRouteTable, IsDefault: true,
					Text: "default via 10.0.0.1",
				}}
			}, Problem, "table 100, which must deliver marked packets locally, has a foreign route: default via 10.0.0.1",
		},
		{
			"the kernel lacks chains of type route", func(f *Facts) {
				f.Features = append(f.Features,
					nft.Support{Feature: nft.FeatureRoute, Err: errors.New("not supported")})
			}, Problem, "which these parameters need",
		},
		{
			"foreign NAT runs first", func(f *Facts) {
				f.Tables = []rules.Table{natTable("x", -200, redirectsElsewhere)}
			},
			Problem, "the application's outbound connections",
		},
		{
			"the ephemeral ports contain ztunnel's ports", func(f *Facts) {
				f.Settings["net.ipv4.ip_local_port_range"] = "15000 60999"
			}, Warning, "contains the proxy's ports 15001,15006,15008,15053",
		},
		{
			"IPv6 is disabled", func(f *Facts) {
				f.Settings["net.ipv6.conf.lo.disable_ipv6"] = "1"
			}, Problem, "the policy route for replies to ztunnel cannot be added",
		},
		{
			"iptables-legacy is used", func(f *Facts) { f.Backend = compat.BackendLegacy }, "", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := healthy()
			tc.change(&f)
			findings := DiagnoseAmbient(f, rules.DefaultAmbient())
			isSevere := func(x Finding) bool { return x.Severity == Problem || x.Severity == Warning }
			switch {
			case tc.want == "":
				if i := slices.IndexFunc(findings, isSevere); i >= 0 {
					t.Errorf("want no problem and no warning, got %+v", findings[i])
				}
			case !slices.ContainsFunc(findings, func(x Finding) bool {
				return x.Severity == tc.severity && strings.Contains(x.Summary, tc.want)
			}):
				t.Errorf("no %s with %q in %+v", tc.severity, tc.want, findings)
			}
			for _, x := range findings {
				if x.Topic != "kernel" && strings.Contains(x.Summary, "TPROXY") ||
					strings.Contains(x.Summary, "::6") || strings.Contains(x.Next, "dual-stack") {
					t.Errorf("want no finding about a sidecar, got %+v", x)
				}
			}
		})
	}
}
