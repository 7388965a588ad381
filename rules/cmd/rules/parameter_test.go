package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// istioFlags are the flags and environment variables in the source code of istio-iptables, with
// their letters and defaults.
var istioFlags = []struct {
	flag, short, variables, fallback string
}{
	{"envoy-port", "p", "", "15001"},
	{"inbound-capture-port", "z", "INBOUND_CAPTURE_PORT", "15006"},
	{"inbound-tunnel-port", "e", "INBOUND_TUNNEL_PORT", "15008"},
	{"proxy-uid", "u", "PROXY_UID", ""},
	{"proxy-gid", "g", "PROXY_GID", ""},
	{"istio-inbound-interception-mode", "m", "ISTIO_INBOUND_INTERCEPTION_MODE", "REDIRECT"},
	{"istio-inbound-tproxy-mark", "t", "ISTIO_INBOUND_TPROXY_MARK", "1337"},
	{"istio-inbound-tproxy-route-table", "r", "ISTIO_INBOUND_TPROXY_ROUTE_TABLE", "133"},
	{"istio-inbound-ports", "b", "ISTIO_INBOUND_PORTS", ""},
	{"istio-local-exclude-ports", "d", "ISTIO_LOCAL_EXCLUDE_PORTS", ""},
	{"istio-service-cidr", "i", "ISTIO_SERVICE_CIDR", ""},
	{"istio-service-exclude-cidr", "x", "ISTIO_SERVICE_EXCLUDE_CIDR", ""},
	{"istio-outbound-ports", "q", "ISTIO_OUTBOUND_PORTS", ""},
	{"istio-local-outbound-ports-exclude", "o", "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE", ""},
	{"istio-exclude-interfaces", "c", "ISTIO_EXCLUDE_INTERFACES", ""},
	{"kube-virt-interfaces", "k", "KUBE_VIRT_INTERFACES", ""},
	{"redirect-dns", "", "REDIRECT_DNS ISTIO_META_DNS_CAPTURE", ""},
	{"capture-all-dns", "", "CAPTURE_ALL_DNS", ""},
	{"drop-invalid", "", "DROP_INVALID INVALID_DROP", ""},
	{"dual-stack", "", "DUAL_STACK ISTIO_DUAL_STACK", ""},
	{"dry-run", "n", "DRY_RUN", ""},
	{"skip-rule-apply", "", "SKIP_RULE_APPLY", ""},
	{"run-validation", "", "RUN_VALIDATION", ""},
	{"iptables-probe-port", "", "IPTABLES_PROBE_PORT", "15002"},
	{"probe-timeout", "", "PROBE_TIMEOUT", "5s"},
	{"network-namespace", "", "NETWORK_NAMESPACE", ""},
	{"cni-mode", "", "CNI_MODE", ""},
	{"reconcile", "", "RECONCILE", ""},
	{"cleanup-only", "", "CLEANUP_ONLY", ""},
	{"force-apply", "", "FORCE_APPLY", ""},
	{"native-nftables", "", "NATIVE_NFTABLES", ""},
	{"force-iptables-binary", "", "FORCE_IPTABLES_BINARY", ""},
	{"", "", "ISTIO_OUTBOUND_OWNER_GROUPS", "*"},
	{"", "", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", ""},
	{"", "", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/32"},
	{"", "", "ENVOY_USER", "istio-proxy"},
}

func TestParametersIncludeTheFlagsOfIstio(t *testing.T) {
	for _, want := range istioFlags {
		i := slices.IndexFunc(allParameters(), func(p parameter) bool {
			return p.flag == want.flag && (p.flag != "" || p.variables[0] == want.variables)
		})
		if i < 0 {
			t.Errorf("%v: no such parameter", want)
			continue
		}
		p := allParameters()[i]
		if p.short != want.short || strings.Join(p.variables, " ") != want.variables ||
			p.fallback != want.fallback {
			t.Errorf("want %v; the parameter has letter %q, variables %q, default %q", want, p.short,
				p.variables, p.fallback)
		}
	}
}

func TestVariablesAreNamedAfterTheFlag(t *testing.T) {
	for _, p := range allParameters() {
		if p.flag == "" || len(p.variables) == 0 {
			continue
		}
		if want := strings.ToUpper(strings.ReplaceAll(p.flag, "-", "_")); p.variables[0] != want {
			t.Errorf("--%s: the first variable is %s, want %s", p.flag, p.variables[0], want)
		}
	}
}

// TestDefaultsInHelpAreTrue sets each parameter to the default that the help shows. This must
// change nothing.
func TestDefaultsInHelpAreTrue(t *testing.T) {
	for _, p := range allParameters() {
		if p.fallback == "" {
			continue
		}
		got := defaultParameters(params.Names{})
		if err := p.set(got, p.fallback); err != nil {
			t.Errorf("%s: default %s: %v", p.synopsis(), p.fallback, err)
		}
		if want := defaultParameters(params.Names{}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: default %s changes %+v to %+v, want no change", p.synopsis(), p.fallback,
				want, got)
		}
	}
}

// sharedNames maps a section to a later section that may use the same names, because no command has
// both sections. Explain has the flags of a packet, and trace has the flags of a filter. Check,
// diff and explain have one budget, and doctor has another.
var sharedNames = map[section]section{
	sectionExplain: sectionTrace, sectionBudget: sectionDoctorBudget,
}

func TestParametersAreDescribedAndHaveUniqueNames(t *testing.T) {
	seen := map[string]section{}
	for _, p := range allParameters() {
		for _, name := range append(slices.Clone(p.variables), "--"+p.flag) {
			other, found := seen[name]
			allowed, isShared := sharedNames[other]
			if found && name != "--" && (!isShared || allowed != p.section) {
				t.Errorf("%s: two parameters have this name", name)
			}
			seen[name] = p.section
		}
		if p.help == "" || p.set == nil || sectionTitles[p.section] == "" {
			t.Errorf("%s %s: no help, no setter or no title of its section", p.flag, p.variables)
		}
	}
}

// TestEveryValidatedFieldHasAParameter verifies that an error of [rules.Redirect.Validate] can name
// the input: each validated field has a parameter.
func TestEveryValidatedFieldHasAParameter(t *testing.T) {
	fields := map[string]bool{}
	for _, p := range allParameters() {
		fields[p.field] = true
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[rules.Redirect]()) {
		switch field.Name {
		case "IPv6", "DropInvalid", "KeepEstablished", "Counters": // booleans are always valid
		case "DNS":
			if !fields["DNS.Servers"] {
				t.Error("DNS.Servers: no parameter has this field")
			}
		default:
			if !fields[field.Name] {
				t.Errorf("%s: no parameter has this field", field.Name)
			}
		}
	}
}

// TestRepeatedListFlagsAreAppended passes more prefixes than one argument can hold.
func TestRepeatedListFlagsAreAppended(t *testing.T) {
	args := []string{
		"show", "-i", "*", "-o", "80", "-p", "1", "-o", "90", "-c", "eth0", "-c", "", "-c", "eth1",
		"-p", "15009",
	}
	for i := range 100 {
		var prefixes []string
		for j := range 100 {
			prefixes = append(prefixes, fmt.Sprintf("10.%d.%d.0/25", i, j))
		}
		args = append(args, "-x", strings.Join(prefixes, ","))
	}
	s, stderr := testSystem()
	stdout := new(strings.Builder)
	s.stdout = stdout
	if code := run(s, args); code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	text := stdout.String()
	if got := strings.Count(text, "/25"); got != 100*100 {
		t.Errorf("%d prefixes, want 10000", got)
	}
	for _, want := range []string{"{ 80, 90 }", `"eth0", "eth1"`, ":15009"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: missing in the ruleset", want)
		}
	}
}
