package settings_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

func TestTableIsConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings.All() {
		switch {
		case seen[s.Env]:
			t.Errorf("%s: duplicate in the table", s.Env)
		case s.Help == "":
			t.Errorf("%s: the help is empty", s.Env)
		case s.Default != "" && !s.Kind.Allows(s.Default):
			t.Errorf("%s: its default %q is not allowed: want %s", s.Env, s.Default, s.Kind.Want)
		case !s.Kind.Allows(s.Example):
			t.Errorf("%s: its example %q is not allowed: want %s", s.Env, s.Example, s.Kind.Want)
		case s.Example == s.Default:
			t.Errorf("%s: its example equals its default", s.Env)
		case s.Required && (s.Default != "" || s.Helm != ""):
			t.Errorf("%s: required, but has a default or a key", s.Env)
		}
		seen[s.Env] = true
	}
	for _, r := range settings.Refused() {
		if seen[r.Env] {
			t.Errorf("%s: rejected and in the table", r.Env)
		}
	}
}

func TestTableAgreesWithThePlugin(t *testing.T) {
	for env, field := range map[string]string{
		"SLUICE_BACKEND":      "backend",
		"SLUICE_STRICT_ISTIO": "strict_istio",
		"SLUICE_DAEMONSET":    "agent_daemonset",
		"SLUICE_LOG_LEVEL":    "plugin_log_level",
		"CNI_AGENT_RUN_DIR":   "cni_agent_run_dir",

		"REPAIR_INIT_CONTAINER_NAME": "validation_container",
	} {
		if s, _ := settings.Find(env); s.Default != config.FieldNamed(field).Default {
			t.Errorf("%s has the default %q, want %q of the plugin's field %s", env, s.Default,
				config.FieldNamed(field).Default, field)
		}
	}
	backend, _ := settings.Find("SLUICE_BACKEND")
	for _, name := range []compat.BackendName{
		compat.BackendAuto, compat.BackendNFT, compat.BackendLegacy,
	} {
		if !backend.Kind.Allows(string(name)) {
			t.Errorf("the table lacks the backend %s", name)
		}
	}
	for _, name := range parameter.Backend.Words() {
		if _, err := compat.Choose(compat.BackendName(name)); err != nil {
			t.Errorf("Choose(%s), which package rules/parameter allows: error %v, want none", name, err)
		}
	}
}

// TestAgentAllowsTheDurationsThatThePluginAllows checks that the agent allows exactly the durations
// that the plugin allows.
func TestAgentAllowsTheDurationsThatThePluginAllows(t *testing.T) {
	for env, name := range map[string]string{
		"SLUICE_API_BUDGET": "api_budget", "SLUICE_API_TRY_TIMEOUT": "api_try_timeout",
	} {
		s, _ := settings.Find(env)
		for _, value := range []string{
			"10s", "1m30s", "100ms", "99ms", "99.999999ms", "2m", "2m0.000000001s", "5m", "24h",
			"-10s", "10", "10 s", "soon",
		} {
			_, err := config.Parse(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"n",%q:%q}`, name,
				value))
			if accepted := err == nil; s.Kind.Allows(value) != accepted {
				t.Errorf("%s=%s: the agent allows it: %t, want %t as the plugin", env, value, !accepted,
					accepted)
			}
		}
	}
}

var pod = map[string]string{"NODE_NAME": "n", "POD_NAME": "p", "POD_NAMESPACE": "istio-system"}

func lookup(extra map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if value, set := extra[name]; set {
			return value, true
		}
		value, set := pod[name]
		return value, set
	}
}

func TestReadFillsDefaultsIn(t *testing.T) {
	v, err := settings.Read(lookup(map[string]string{
		"SLUICE_API_BUDGET": " 20s ", "CHAINED_CNI_PLUGIN": "false", "KUBECONFIG_MODE": "0640",
		"EXCLUDE_NAMESPACES":    "a,b",
		"SLUICE_AUDIT_INTERVAL": "",
	}))
	if err != nil {
		t.Fatal(err)
	}
	got := []any{
		v.Duration("SLUICE_API_BUDGET"), v.Duration("SLUICE_AUDIT_INTERVAL"),
		v.Bool("CHAINED_CNI_PLUGIN"), v.Mode("KUBECONFIG_MODE"),
		v.Names("EXCLUDE_NAMESPACES"), v.Names("SLUICE_DEVIATIONS_OFF"), v.Int("MONITORING_PORT"),
		v.Text("POD_NAMESPACE"),
	}
	want := []any{
		20 * time.Second, time.Minute, false, uint32(0o640),
		[]string{"a", "b"},
		[]string(nil),
		15014, "istio-system",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestReadNamesEveryFault(t *testing.T) {
	_, err := settings.Read(lookup(map[string]string{
		"NODE_NAME": "", "MONITORING_PORT": "65536", "CNI_CONF_NAME": "../x.conf",
		"ENABLE_AMBIENT_DETECTION_RETRY": "true", "NATIVE_NFTABLES": "",
		"KUBERNETES_NODE_NAME": "n", "LOG_LEVEL": "debug", "REVISION": "r", "SYSTEM_NAMESPACE": "s",
	}))
	if err == nil {
		t.Fatal("Read of invalid values: no error, want one")
	}
	want := []string{
		"environment variable CNI_CONF_NAME: \"../x.conf\": must be a file name without a directory that ends in .conf or .conflist",
		"environment variable MONITORING_PORT: \"65536\": must be a port, or 0 to disable it",
		"environment variable NODE_NAME: not set; must be the name of the node (downward API)",
		"environment variable ENABLE_AMBIENT_DETECTION_RETRY is not supported; ADD always fails if a pod cannot be read, unless SLUICE_UNREADABLE_PODS=skip",
		"environment variable KUBERNETES_NODE_NAME is only printed by Istio; the name of the node is NODE_NAME",
		"environment variable LOG_LEVEL is not read by Istio either; use SLUICE_LOG_LEVEL",
		"environment variable REVISION is not used by Istio either; the value revision of the chart sets labels",
		"environment variable SYSTEM_NAMESPACE has no effect; the agent does not need to know the namespace of ztunnel",
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("lines of the error (-want +got):\n%s", diff)
	}
}

// TestReadRejectsInvalidParameters checks that the agent rejects at its start values that package
// rules/parameter or the plugin does not allow.
func TestReadRejectsInvalidParameters(t *testing.T) {
	for _, c := range []struct{ env, value, want string }{
		{"SLUICE_HEALTH_PORT", "0", `"0": must be a port from 1 to 65535`},
		{"SLUICE_BACKEND", "iptables", `"iptables": must be auto, nft or legacy`},
		{"SLUICE_STRICT_ISTIO", "yes", `"yes": must be true or false`},
		{
			"SLUICE_DEVIATIONS_OFF", "nat-first,nat-last",
			`"nat-first,nat-last": must be a list of ids out of tproxy-tunnel-port,`,
		},
		{"SLUICE_DEVIATIONS_OFF", "nat-first,", `"nat-first,": must be a list of ids`},
		{"SLUICE_ENABLEMENT_SELECTORS", `[],"counters":true`, `"[],\"counters\":true": must be JSON: a list`},
		{"AMBIENT_ENABLEMENT_SELECTOR", `[] x`, `"[] x": must be JSON: a list`},
		{"SLUICE_COUNTER_METRICS_PODS", "00", `"00": must be a number from 1 to 1000`},
		{"SLUICE_ENABLEMENT_SELECTORS", `[{"pods":{}}]`, `"[{\"pods\":{}}]": must be JSON: a list`},
		{
			"AMBIENT_ENABLEMENT_SELECTOR", `[{"podSelector":{"matchLabels":{"a":"b "}}}]`,
			`"[{\"podSelector\":{\"matchLabels\":{\"a\":\"b \"}}}]": must be JSON: a list`,
		},
		{"HOST_PROBE_SNAT_IP", "0.0.0.0", `"0.0.0.0": must be a unicast IPv4 address`},
		{"HOST_PROBE_SNAT_IP", "255.255.255.255", `"255.255.255.255": must be a unicast IPv4 address`},
		{"HOST_PROBE_SNAT_IPV6", "ff02::1", `"ff02::1": must be a unicast IPv6 address`},
		{"EXCLUDE_NAMESPACES", "a,B", `"a,B": must be comma-separated: a list of Kubernetes names`},
	} {
		_, err := settings.Read(lookup(map[string]string{c.env: c.value}))
		if err == nil || !strings.HasPrefix(err.Error(), "environment variable "+c.env+": "+
			c.want) {
			t.Errorf("%s=%s: error %v, want one that begins with %q after the variable", c.env,
				c.value, err, c.want)
		}
	}
	v, err := settings.Read(
		lookup(map[string]string{"SLUICE_DEVIATIONS_OFF": "nat-first,mapped-cidr"}))
	if want := []string{"nat-first", "mapped-cidr"}; err != nil ||
		!cmp.Equal(v.Names("SLUICE_DEVIATIONS_OFF"), want) {
		t.Errorf("SLUICE_DEVIATIONS_OFF is %v, want %v; error %v",
			v.Names("SLUICE_DEVIATIONS_OFF"), want, err)
	}
}

func TestKindAllows(t *testing.T) {
	for _, c := range []struct {
		reason string
		kind   settings.Kind
		value  string
		want   bool
	}{
		{"a Boolean in Go's syntax", settings.Bool, "1", true},
		{"not a Boolean", settings.Bool, "yes", false},
		{"a duration needs a unit", settings.Duration, "10", false},
		{"a duration of nanoseconds", settings.Duration, "1ns", false},
		{"a relative path", settings.Path, "etc/cni", false},
		{"a file name that no runtime reads", settings.FileName, "10-calico.yaml", false},
		{"only an extension", settings.FileName, ".conf", false},
		{"a single-plugin configuration", settings.FileName, "istio-cni.conf", true},
		{"a list of plugins", settings.ListName, "02-istio-cni.conflist", true},
		{
			"a single-plugin configuration instead of a list", settings.ListName, "02-istio-cni.conf",
			false,
		},
		{"a list in a directory", settings.ListName, "net.d/02-istio-cni.conflist", false},
		{"a mode that allows all users to read the token", settings.Mode, "0644", false},
		{"a mode that its owner cannot read", settings.Mode, "0040", false},
		{"a mode that is not octal", settings.Mode, "0680", false},
		{"an empty name", settings.Names, "a,,b", false},
		{"a name in upper case", settings.Names, "Default", false},
		{
			"a name of the maximum length of the plugin", settings.Names,
			"kube-system," + strings.Repeat("a", 63), true,
		},
		{"a longer name", settings.Names, strings.Repeat("a", 64), false},
		{"an object instead of a list", settings.JSONList, "{}", false},
		{"a key with a prefix", settings.TaintKey, "cni.istio.io/not-ready", true},
		{"a taint with its effect", settings.TaintKey, "cni.istio.io/not-ready:NoSchedule", false},
		{"a label with a prefix", settings.QualifiedName, "cni.istio.io/uninitialized", true},
		{"a key with a blank", settings.QualifiedName, "not redirected", false},
		{"a key with two empty levels in its domain", settings.QualifiedName, "a..b/c", false},
		{"a value of a label with a slash", settings.LabelValue, "a/b", false},
		{"a value of a label that is too long", settings.LabelValue, strings.Repeat("a", 64), false},
		{"the name of a container", settings.ContainerName, "istio-validation", true},
		{"a name that no container can have", settings.ContainerName, "Istio_Validation", false},
		{"a label selector", settings.LabelSelector, "tier in (web, db),!old", true},
		{"a label selector without an operator", settings.LabelSelector, "tier web", false},
		{"a field selector", settings.FieldSelector, "metadata.namespace!=web,spec.hostNetwork=true", true},
		{"a field selector without an operator", settings.FieldSelector, "metadata.name", false},
		{"a field that is not supported", settings.FieldSelector, "status.nominatedNodeName=x", false},
		{"an exit code above 255", settings.ExitCode, "256", false},
		{"an empty text", settings.Text, "", false},
		{"an empty value of a label", settings.LabelValue, "", false},
		{"an empty label selector", settings.LabelSelector, "", false},
		{"an empty field selector", settings.FieldSelector, "", false},
		{"an empty list", settings.Names, "", false},
	} {
		if got := c.kind.Allows(c.value); got != c.want {
			t.Errorf("%s: %q allowed: %v, want %v", c.reason, c.value, got, c.want)
		}
	}
}
