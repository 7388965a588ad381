package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/log/options"
	"github.com/sluice-mesh/sluice/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// configuration returns a configuration with additional fields.
func configuration(fields ...string) []byte {
	return []byte(`{"cniVersion":"1.0.0","name":"e2e","type":"sluice-cni"` +
		strings.Join(append([]string{""}, fields...), ",") + "}")
}

// defaults returns the configuration without any field of the plugin.
func defaults() *config.Config {
	return &config.Config{
		CNIVersion: "1.0.0", Network: "e2e",
		RunDir: "/var/run/sluice-cni", Kubeconfig: "/var/run/sluice-cni/sluice-cni-kubeconfig",
		Backend: compat.BackendAuto, UnreadablePods: config.Fail, APIBudget: 10 * time.Second,
		APITryTimeout: 3 * time.Second,
		Decide:        decide.Settings{AgentDaemonSet: "sluice-node"},
		Log: options.Log{
			File: "/var/run/sluice-cni/sluice-cni.log", MaxMegabytes: 10, Backups: 1, MaxDays: 2,
		},
	}
}

var allDeviations = []rules.DeviationID{
	rules.TunnelPortTProxy, rules.RerouteTProxy, rules.MappedCIDR, rules.NATFirst,
	rules.AmbientIPv6, rules.ProbesByUser, rules.ProbesByHost,
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, fields string
		change       func(c *config.Config)
	}{
		{
			"no fields of the plugin", `"capabilities":{"portMappings":true},"ipam":{},"dns":{}`,
			func(*config.Config) {},
		},
		{
			"foreign fields",
			`"args":{"x":1},"deviceID":"0","delegates":[],"native_nftables":true,"ambient_enabled":false`,
			func(*config.Config) {},
		},
		{
			"ambient mode with Istio's settings", `"ambient_enabled":true`, func(c *config.Config) {
				ambient := decide.DefaultAmbientSettings()
				c.Decide.Ambient = &ambient
			},
		},
		{
			"ambient mode",
			`"ambient_enabled":true,"ambient_enablement_selectors":[{"podSelector":{"matchLabels":{"a":"b"}}}],` +
				`"ambient_dns_capture":false,"ambient_ipv6":false,"host_probe_snat_ip":"169.254.9.9",` +
				`"host_probe_snat_ipv6":"fd99::9"`,
			func(c *config.Config) {
				c.Decide.Ambient = &decide.AmbientSettings{
					Selectors: []decide.Selector{{Pods: &decide.LabelSelector{
						MatchLabels: map[string]string{"a": "b"},
					}}},
					ProbeSourceIPv4: netip.MustParseAddr("169.254.9.9"),
					ProbeSourceIPv6: netip.MustParseAddr("fd99::9"),
				}
			},
		},
		{
			"settings of ambient mode while it is disabled", `"ambient_ipv6":false`, func(*config.Config) {},
		},
		{
			"null is like a missing field",
			`"log_file":null,"backend":null,"exclude_namespaces":null,"kubernetes":null,"prevResult":null`,
			func(*config.Config) {},
		},
		{
			"an empty string is like a missing field",
			`"backend":"","plugin_log_level":"","kubeconfig":"","pod_namespace":"","unreadable_pods":""`,
			func(*config.Config) {},
		},
		{
			"fields that the runtime adds",
			`"prevResult":{"a": 1},"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"},"portMappings":[]},` +
				`"cni.dev/valid-attachments":[{"containerID":"x","ifname":"eth0"}]`,
			func(c *config.Config) {
				c.PrevResult = json.RawMessage(`{"a": 1}`)
				c.Annotations = map[string]string{"a": "b"}
				c.ValidAttachments = []types.GCAttachment{{ContainerID: "x", IfName: "eth0"}}
			},
		},
		{
			"annotations of another type",
			`"runtimeConfig":{"io.kubernetes.cri.pod-annotations":["a"]}`, func(*config.Config) {},
		},
		{
			"one annotation of another type",
			`"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b","c":1}}`,
			func(*config.Config) {},
		},
		{
			"no valid attachments", `"cni.dev/valid-attachments":null`,
			func(c *config.Config) { c.ValidAttachments = []types.GCAttachment{} },
		},
		{
			"another run directory", `"cni_agent_run_dir":"/run/x"`, func(c *config.Config) {
				c.RunDir, c.Kubeconfig, c.Log.File = "/run/x", "/run/x/sluice-cni-kubeconfig",
					"/run/x/sluice-cni.log"
			},
		},
		{
			"Istio's early fields",
			`"log_level":"debug","kubernetes":{"kubeconfig":"/k","exclude_namespaces":["a"],"cni_bin_dir":"/opt/cni/bin"}`,
			func(c *config.Config) {
				c.Log.Level, c.Kubeconfig, c.Decide.ExcludeNamespaces = options.Debug, "/k",
					[]string{"a"}
			},
		},
		{
			"current fields take precedence over the early ones",
			`"log_level":"debug","plugin_log_level":"WARN","kubeconfig":"/new","exclude_namespaces":["b"],` +
				`"kubernetes":{"kubeconfig":"/k","exclude_namespaces":["a"]}`,
			func(c *config.Config) {
				c.Log.Level, c.Kubeconfig, c.Decide.ExcludeNamespaces = options.Warn, "/new",
					[]string{"b"}
			},
		},
		{
			"names of objects",
			`"pod_namespace":"sluice-system","agent_daemonset":"node.agent","proxy_container":"envoy","validation_container":"check"`,
			func(c *config.Config) {
				c.Decide.AgentNamespace, c.Decide.AgentDaemonSet = "sluice-system", "node.agent"
				c.Decide.ProxyContainer, c.Decide.ValidationContainer = "envoy", "check"
			},
		},
		{
			"selectors", `"enablement_selectors":[{"podSelector":{"matchLabels":{"a":"b"}}}]`,
			func(c *config.Config) {
				c.Decide.Selectors = []decide.Selector{
					{Pods: &decide.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
				}
			},
		},
		{
			"the policy for unreadable pods", `"unreadable_pods":"skip","api_budget":"2s"`,
			func(c *config.Config) {
				c.UnreadablePods, c.APIBudget, c.APITryTimeout = config.Skip, 2*time.Second,
					2*time.Second
			},
		},
		{"the backend", `"backend":"legacy"`, func(c *config.Config) {
			c.Backend = compat.BackendLegacy
		}},
		{"strict Istio", `"strict_istio":true`, func(c *config.Config) { c.Decide.Without = allDeviations }},
		{"some deviations disabled", `"deviations_off":["nat-first"]`, func(c *config.Config) {
			c.Decide.Without = []rules.DeviationID{"nat-first"}
		}},
		{"counters", `"counters":true`, func(c *config.Config) { c.Decide.Counters = true }},
		{
			"strict Istio with some deviations disabled", `"strict_istio":true,"deviations_off":["nat-first"]`,
			func(c *config.Config) { c.Decide.Without = allDeviations },
		},
		{
			"the log file",
			`"log_file":"/var/log/s.log","log_file_max_mb":1,"log_file_backups":0,"log_file_max_days":0`,
			func(c *config.Config) { c.Log = options.Log{File: "/var/log/s.log", MaxMegabytes: 1} },
		},
		{"no log file", `"log_file":""`, func(c *config.Config) { c.Log.File = "" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := defaults()
			tc.change(want)
			got, err := config.Parse(configuration(tc.fields))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

// TestErrorsNameFieldValueAndAllowed checks that the error of an invalid value names the field, the
// value and the allowed values.
func TestErrorsNameFieldValueAndAllowed(t *testing.T) {
	const name = "a Kubernetes name"
	for _, tc := range []struct{ field, value, want string }{
		{"cni_agent_run_dir", `"run"`, `"run" is not allowed: want an absolute path`},
		{"cni_agent_run_dir", `"/a\u0000b"`, `"/a\u0000b" is not allowed: want an absolute path`},
		{"kubeconfig", `7`, `7 is not allowed: want an absolute path`},
		{
			"exclude_namespaces", `["kube-system","Shop","a b"]`,
			`"Shop" is not allowed: want a list of Kubernetes names`,
		},
		{
			"exclude_namespaces", `["kube-system","Shop","a b"]`,
			`"a b" is not allowed: want a list of Kubernetes names`,
		},
		{
			"exclude_namespaces", `"kube-system"`,
			`"kube-system" is not allowed: want a list of Kubernetes names`,
		},
		{"pod_namespace", `"-a"`, `"-a" is not allowed: want ` + name},
		{"agent_daemonset", `"a/b"`, `"a/b" is not allowed: want ` + name},
		{"proxy_container", `"` + strings.Repeat("a", 64) + `"`, "… is not allowed: want " + name},
		{"validation_container", `{}`, `{} is not allowed: want ` + name},
		{"unreadable_pods", `"ignore"`, `"ignore" is not allowed: want fail or skip`},
		{"unreadable_pods", `true`, `true is not allowed: want fail or skip`},
		{"api_budget", `"99ms"`, `"99ms" is not allowed: want a duration from 100ms to 2m`},
		{"api_budget", `10`, `10 is not allowed: want a duration`},
		{"api_try_timeout", `"121s"`, `"121s" is not allowed: want a duration`},
		{"backend", `"ebpf"`, `"ebpf" is not allowed: want auto, nft or legacy`},
		{"strict_istio", `"true"`, `"true" is not allowed: want true or false`},
		{
			"deviations_off", `["nat-last"]`,
			`"nat-last" is not allowed: want a list of ids out of tproxy-tunnel-port, `,
		},
		{"ambient_enabled", `"yes"`, `"yes" is not allowed: want true or false`},
		{"ambient_ipv6", `1`, `1 is not allowed: want true or false`},
		{"ambient_dns_capture", `"true"`, `"true" is not allowed: want true or false`},
		{"host_probe_snat_ip", `"fd99::9"`, `"fd99::9" is not allowed: want a unicast IPv4 address`},
		{"host_probe_snat_ip", `"0.0.0.0"`, `"0.0.0.0" is not allowed: want a unicast IPv4 address`},
		{"host_probe_snat_ip", `"127.0.0.1"`, `"127.0.0.1" is not allowed: want a unicast IPv4 address`},
		{"host_probe_snat_ipv6", `"::1"`, `"::1" is not allowed: want a unicast IPv6 address`},
		{"host_probe_snat_ipv6", `"fe80::1%e"`, `"fe80::1%e" is not allowed: want a unicast IPv6 address`},
		{
			"ambient_enablement_selectors", `[{"namespaceSelector":{"matchExpressions":[{"key":"a"}]}}]`,
			`element 0 (namespaceSelector: matchExpressions[0]`,
		},
		{"plugin_log_level", `"loud"`, `"loud" is not allowed: want debug, info`},
		{"log_level", `3`, `3 is not allowed: want debug, info`},
		{"log_file", `"x.log"`, `"x.log" is not allowed: want an absolute path, or empty for none`},
		{"log_file_max_mb", `0`, `0 is not allowed: want 1 to 1024`},
		{"log_file_max_mb", `1.5`, `1.5 is not allowed: want 1 to 1024`},
		{"log_file_backups", `-1`, `-1 is not allowed: want 0 to 100`},
		{"log_file_max_days", `"2"`, `"2" is not allowed: want 0 to 3650`},
		{"kubernetes", `[]`, `[] is not allowed: want an object`},
		{
			"kubernetes", `{"kubeconfig":"k"}`,
			`kubernetes.kubeconfig: "k" is not allowed: want an absolute path`,
		},
		{
			"enablement_selectors", `[{"podSelectors":{}}]`,
			`[{"podSelectors":{}}] is not allowed: want a list of objects`,
		},
		{
			"enablement_selectors",
			`[{},{"podSelector":{"matchExpressions":[{"key":"a","operator":"in"}]}}]`,
			`element 1 (podSelector: matchExpressions[0]`,
		},
	} {
		t.Run(tc.field+" "+tc.value, func(t *testing.T) {
			_, err := config.Parse(configuration(fmt.Sprintf("%q:%s", tc.field, tc.value)))
			var faults rules.Faults
			if !errors.As(err, &faults) || !strings.Contains(err.Error(), tc.field) ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v\nwant %s: %s", err, tc.field, tc.want)
			}
		})
	}
}

// TestAllErrorsAreReported checks that one error contains all invalid fields.
func TestAllErrorsAreReported(t *testing.T) {
	_, err := config.Parse([]byte(`{"cniVersion":"0.2.0","name":"e2e","backend":"x","log_file_max_mb":0,"exclude_namespace":[]}`))
	want := `cniVersion: "0.2.0" is not allowed: want 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0
backend: "x" is not allowed: want auto, nft or legacy
log_file_max_mb: 0 is not allowed: want 1 to 1024
"exclude_namespace": this name is not allowed: want exclude_namespaces`
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant %s", err, want)
	}
}

// TestMisspelledFieldsAreRejected checks that a field whose name resembles one of the plugin's is
// rejected as a misspelling.
func TestMisspelledFieldsAreRejected(t *testing.T) {
	for unknown, suggestion := range map[string]string{
		"exclude_namespace": "exclude_namespaces", "excludeNamespaces": "exclude_namespaces",
		"Exclude-Namespaces": "exclude_namespaces",
		"bakcend":            "backend", "backends": "backend", "kubeConfig": "kubeconfig",
		"logLevel": "log_level", "logFile": "log_file",
		"pod_namespaces": "pod_namespace", "enablement_selector": "enablement_selectors",
		"strictIstio":    "strict_istio",
		"unreadable_pod": "unreadable_pods", "apibudget": "api_budget", "Kubernetes": "kubernetes",
		"cni_agent_rundir": "cni_agent_run_dir",
	} {
		_, err := config.Parse(configuration(fmt.Sprintf("%q:null", unknown)))
		if want := fmt.Sprintf("%q: this name is not allowed: want %s", unknown,
			suggestion); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", unknown, err, want)
		}
	}
	if _, err := config.Parse(configuration(`"kubernetes":{"exclude_namespace":[]}`)); err == nil ||
		!strings.Contains(err.Error(), "want kubernetes.exclude_namespaces") {
		t.Errorf("a misspelled field of the object kubernetes: %v, want its name", err)
	}
}

// TestForeignFieldsAreNotMisspellings checks that fields of CNI, Istio and runtimes are not
// rejected as misspelled fields of the plugin.
func TestForeignFieldsAreNotMisspellings(t *testing.T) {
	others := []string{
		"args", "capabilities", "ipam", "dns", "prevResult", "runtimeConfig", "disableCheck",
		"disableGC", "cni.dev/attachments",
		"native_nftables", "enable_ambient_detection_retry", "log_uds_address",
		"cni_event_address", "mtu", "bridge",
		"kubernetes.cni_bin_dir", "kubernetes.node_name", "kubernetes.k8s_api_root",
		"kubernetes.intercept_type", "delegates", "deviceID",
		"pciBusID", "mac", "ips", "logger", "backup", "loadOnlyCNIVersion", "cniVersions",
		"readinessindicatorfile", "namespaceIsolation",
	}
	for _, other := range others {
		if _, err := config.Parse(configuration(nullField(other))); err != nil {
			t.Errorf("%s is rejected: %v", other, err)
		}
	}
}

// TestReadingTakesLittleMemory limits the memory: every call of the plugin reads its configuration
// in a new process, where the first use of memory takes most of the time.
func TestReadingTakesLittleMemory(t *testing.T) {
	data := configuration(
		`"prevResult":{"ips":[]},"capabilities":{},"runtimeConfig":{},"cni_agent_run_dir":"/run/s"`)
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := config.Parse(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n > 32<<10 {
		t.Errorf("Parse allocates %d bytes, want at most 32 KiB", n)
	}
}

func nullField(name string) string {
	if object, field, ok := strings.Cut(name, "kubernetes."); ok && object == "" {
		return fmt.Sprintf(`"kubernetes":{%q:null}`, field)
	}
	return fmt.Sprintf("%q:null", name)
}

// TestFilesThatAreNotConfigurations checks that the error for a file that is not the JSON object of
// a CNI configuration is not a [rules.Faults], except for null, which counts as an object without
// fields.
func TestFilesThatAreNotConfigurations(t *testing.T) {
	for _, data := range []string{
		"", "{", "[]", `"x"`, `{"cniVersion":1}`, `{"runtimeConfig":[]}`,
		`{"cni.dev/valid-attachments":[1]}`,
	} {
		_, err := config.Parse([]byte(data))
		var faults rules.Faults
		if err == nil || errors.As(err, &faults) ||
			!strings.HasPrefix(err.Error(), "decode the network configuration: ") {
			t.Errorf("%q: %v, want an error that is not about fields", data, err)
		}
	}
	if _, err := config.Parse([]byte("null")); err == nil ||
		!strings.Contains(err.Error(), "cniVersion") {
		t.Errorf("null: %v, want an error about cniVersion", err)
	}
}

// TestParseLenient checks that DEL finds its directory, and that a pod of the node agent is
// recognized, despite other errors.
func TestParseLenient(t *testing.T) {
	for data, want := range map[string]string{
		"": config.DefaultRunDir, "[]": config.DefaultRunDir, "{}": config.DefaultRunDir,
		`{"cni_agent_run_dir":"run"}`:                  config.DefaultRunDir,
		`{"cni_agent_run_dir":"/run/x","backend":"x"}`: "/run/x",
		`{"cni_agent_run_dir":null}`:                   config.DefaultRunDir,
		`{"cni_agent_run_dir":"/run/x","name":1}`:      "/run/x",
	} {
		if got := config.ParseLenient([]byte(data)).RunDir; got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
	wrong := configuration(`"backend":"x","exclude_namespace":[],"pod_namespace":"mesh","agent_daemonset":"X","prevResult":{"ips":[]}`)
	c := config.ParseLenient(wrong)
	if c.Decide.AgentNamespace != "mesh" || c.Decide.AgentDaemonSet != "sluice-node" ||
		c.Backend != compat.BackendAuto ||
		c.CNIVersion == "" || string(c.PrevResult) != `{"ips":[]}` {
		t.Errorf("the valid fields are not set, or the invalid ones lack their defaults: %+v", c)
	}
}

// TestListWithAnElementOfAnotherTypeIsInvalidAsAWhole checks that there is one fault, about the whole
// list, and that none of the elements is stored.
func TestListWithAnElementOfAnotherTypeIsInvalidAsAWhole(t *testing.T) {
	for _, field := range []string{"deviations_off", "exclude_namespaces"} {
		text := configuration(fmt.Sprintf(`%q:["nat-first",5]`, field))
		_, err := config.Parse(text)
		var faults rules.Faults
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Value != `["nat-first",5]` {
			t.Errorf("%s: error %v, want one fault about the list", field, err)
		}
		c := config.ParseLenient(text)
		if len(c.Decide.Without) > 0 || len(c.Decide.ExcludeNamespaces) > 0 {
			t.Errorf("%s: settings %+v, want no element of the list", field, c.Decide)
		}
	}
}

// TestParseLenientKeepsDefaults checks that invalid values and invalid elements of lists are not
// stored.
func TestParseLenientKeepsDefaults(t *testing.T) {
	c := config.ParseLenient(configuration(`"ambient_enabled":true,"ambient_dns_capture":"yes",` +
		`"ambient_enablement_selectors":"x","exclude_namespaces":["a","B"]`))
	defaults := decide.DefaultAmbientSettings()
	if diff := cmp.Diff(&defaults, c.Decide.Ambient, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("settings of ambient mode (-want +got):\n%s", diff)
	}
	if got := c.Decide.ExcludeNamespaces; !slices.Equal(got, []string{"a"}) {
		t.Errorf("excluded namespaces: %q, want a", got)
	}
}

// TestFieldsAreDescribedAndDefaultsHaveNoEffect checks that every field of the table is described,
// and that a field with its default value has no effect.
func TestFieldsAreDescribedAndDefaultsHaveNoEffect(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range config.Fields() {
		if f.Name == "" || f.Want == "" || f.Default == "" || f.Meaning == "" || seen[f.Name] {
			t.Errorf("an incomplete field, or a field that is listed twice: %+v", f)
		}
		seen[f.Name] = true
		if strings.Contains(f.Name, ".") || strings.Contains(f.Default, "cni_agent_run_dir/") ||
			f.Default == "none" {
			continue
		}
		value, _ := json.Marshal(f.Default)
		if f.Default == "false" || f.Default == "true" || strings.Trim(f.Default, "0123456789") == "" {
			value = []byte(f.Default)
		}
		got, err := config.Parse(configuration(fmt.Sprintf("%q:%s", f.Name, value)))
		if err != nil {
			t.Errorf("default of %s: %v", f.Name, err)
			continue
		}
		// An empty name means the default.
		got.Decide.ProxyContainer, got.Decide.ValidationContainer = "", ""
		if diff := cmp.Diff(defaults(), got); diff != "" {
			t.Errorf("default of %s (-want +got):\n%s", f.Name, diff)
		}
	}
}

// FuzzParse parses arbitrary input. An accepted configuration is valid.
func FuzzParse(f *testing.F) {
	f.Add(configuration(`"kubernetes":{"kubeconfig":"/k"},"enablement_selectors":[{}],"api_budget":"1s","log_level":"debug"`))
	f.Add(configuration(`"excludenamespaces":0,"log_file_max_mb":1e3,"deviations_off":["nat-first"],"strict_istio":true`))
	f.Add([]byte(`{"cniVersion":"1.1.0","prevResult":null,"cni.dev/valid-attachments":null,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if dir := config.ParseLenient(data).RunDir; !strings.HasPrefix(dir, "/") {
			t.Errorf("run directory %q, want an absolute path", dir)
		}
		c, err := config.Parse(data)
		if err != nil {
			return
		}
		if !strings.HasPrefix(c.RunDir, "/") || !strings.HasPrefix(c.Kubeconfig, "/") ||
			c.APIBudget < c.APITryTimeout || c.APITryTimeout <= 0 ||
			c.UnreadablePods != config.Fail && c.UnreadablePods != config.Skip ||
			c.Log.File != "" && c.Log.File[0] != '/' {
			t.Errorf("an invalid configuration is accepted: %+v", c)
		}
		if _, err := compat.Choose(c.Backend); err != nil {
			t.Errorf("an invalid backend is accepted: %v", err)
		}
	})
}

// The example lists all fields with their defaults.
func ExampleFields() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range config.Fields() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Name, f.Default, f.Meaning)
	}
	_ = w.Flush()
	// Output:
	// cni_agent_run_dir              /var/run/sluice-cni                      directory of the plugin's files, shared with the node agent; agent/plugin.sock in it is the agent's socket
	// kubernetes.kubeconfig          as kubeconfig                            the field kubeconfig of early versions of istio-cni
	// kubeconfig                     cni_agent_run_dir/sluice-cni-kubeconfig  file with the address of the API server and the plugin's credentials
	// kubernetes.exclude_namespaces  none                                     the field exclude_namespaces of early versions of istio-cni
	// exclude_namespaces             none                                     namespaces whose pods are not redirected; the plugin does not read these pods
	// enablement_selectors           none                                     redirect only pods that match one of these selectors; if empty, all
	// ambient_enabled                false                                    let the node agent redirect the pods of ambient mode to ztunnel
	// ambient_enablement_selectors   none                                     pods that match one of these selectors are in ambient mode; if missing, Istio's default: the label istio.io/dataplane-mode
	// ambient_dns_capture            true                                     capture the DNS queries of pods in ambient mode, unless their annotation says otherwise
	// ambient_ipv6                   true                                     capture the IPv6 traffic of pods in ambient mode
	// host_probe_snat_ip             169.254.7.127                            IPv4 source address of probes; connections from it are not captured in ambient mode
	// host_probe_snat_ipv6           fd16:9254:7127:1337:ffff:ffff:ffff:ffff  IPv6 source address of probes; connections from it are not captured in ambient mode
	// pod_namespace                  none                                     namespace of the node agent; the pods of the agent are never redirected; if set, STATUS fails only for problems of the kernel, and logs problems that the agent repairs (configuration and credentials)
	// agent_daemonset                sluice-node                              name of the node agent's DaemonSet
	// proxy_container                istio-proxy                              name of the proxy's container
	// validation_container           istio-validation                         name of the init container whose arguments state the mesh's settings
	// unreadable_pods                fail                                     what ADD does if the pod cannot be read: fail, or skip redirection
	// api_budget                     10s                                      time limit for all attempts to read a pod from the API server; a request to the node agent may take another second
	// api_try_timeout                3s                                       time limit for one attempt, not more than the limit for all attempts
	// backend                        auto                                     backend: nft (nf_tables), legacy (iptables-legacy), or auto, the first of the two that the kernel supports
	// strict_istio                   false                                    treat every packet as istio-init does: disables all deviations
	// deviations_off                 none                                     disable single deviations from Istio by id
	// counters                       false                                    give each rule a counter in nf_tables; the rules of iptables-legacy always have counters
	// log_level                      info                                     the field plugin_log_level of early versions of istio-cni
	// plugin_log_level               info                                     minimum log level
	// log_file                       cni_agent_run_dir/sluice-cni.log         log file; messages are also sent to standard error and to the node agent
	// log_file_max_mb                10                                       size in MiB at which the log file is rotated
	// log_file_backups               1                                        number of rotated log files to keep; if 0, all
	// log_file_max_days              2                                        days for which rotated log files are kept; if 0, forever
}
