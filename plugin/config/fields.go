package config

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/log/options"
	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/parameter"
)

// A Field describes a field of the configuration that belongs to the plugin.
type Field struct {
	// Name is the JSON name. A dot separates an object and its field.
	Name string
	// Want describes the allowed values, Default the value of a missing field.
	Want, Default string
	// Meaning describes the effect of the field.
	Meaning string

	set setter
}

// NoDefault is the value of [Field.Default] for a field without a default value.
const NoDefault = "none"

// The fields that the code refers to by name.
const (
	runDirField  = "cni_agent_run_dir"
	logFileField = "log_file"
	ambientField = "ambient_enabled"
	earlyObject  = "kubernetes" // an object with fields of early versions of istio-cni
)

// Fields returns all fields. If two fields have the same meaning, the later field takes precedence.
func Fields() []Field {
	return []Field{
		{
			runDirField, "an absolute path", DefaultRunDir,
			"directory of the plugin's files, shared with the node agent; " +
				"agent/plugin.sock in it is the agent's socket",
			path(func(c *Config) *string { return &c.RunDir }),
		},
		{
			"kubernetes.kubeconfig", "an absolute path", "as kubeconfig",
			"the field kubeconfig of early versions of istio-cni",
			path(func(c *Config) *string { return &c.Kubeconfig }),
		},
		{
			"kubeconfig", "an absolute path", "cni_agent_run_dir/" + kubeconfigFile,
			"file with the address of the API server and the plugin's credentials",
			path(func(c *Config) *string { return &c.Kubeconfig }),
		},
		{
			"kubernetes.exclude_namespaces", namesWant, NoDefault,
			"the field exclude_namespaces of early versions of istio-cni",
			names(func(c *Config) *[]string { return &c.Decide.ExcludeNamespaces }),
		},
		{
			"exclude_namespaces", namesWant, NoDefault,
			"namespaces whose pods are not redirected; the plugin does not read these pods",
			names(func(c *Config) *[]string { return &c.Decide.ExcludeNamespaces }),
		},
		{
			"enablement_selectors", selectorsWant, NoDefault,
			"redirect only pods that match one of these selectors; if empty, all",
			selectors(func(c *Config) *[]decide.Selector { return &c.Decide.Selectors }),
		},
		{
			ambientField, "true or false", "false",
			"let the node agent redirect the pods of ambient mode to ztunnel", setAmbient,
		},
		{
			"ambient_enablement_selectors", selectorsWant, NoDefault,
			"pods that match one of these selectors are in ambient mode; if missing, Istio's default: " +
				"the label istio.io/dataplane-mode",
			selectors(func(c *Config) *[]decide.Selector { return &ensureAmbient(c).Selectors }),
		},
		{
			"ambient_dns_capture", "true or false", "true",
			"capture the DNS queries of pods in ambient mode, unless their annotation says otherwise",
			boolean(func(c *Config) *bool { return &ensureAmbient(c).DNS }),
		},
		{
			"ambient_ipv6", "true or false", "true", "capture the IPv6 traffic of pods in ambient mode",
			boolean(func(c *Config) *bool { return &ensureAmbient(c).IPv6 }),
		},
		{
			"host_probe_snat_ip", rules.AllowedProbeSourceIPv4, rules.DefaultProbeSourceIPv4().String(),
			"IPv4 source address of probes; connections from it are not captured in ambient mode",
			address(rules.AllowsProbeSourceIPv4, func(c *Config) *netip.Addr {
				return &ensureAmbient(c).ProbeSourceIPv4
			}),
		},
		{
			"host_probe_snat_ipv6", rules.AllowedProbeSourceIPv6, rules.DefaultProbeSourceIPv6().String(),
			"IPv6 source address of probes; connections from it are not captured in ambient mode",
			address(rules.AllowsProbeSourceIPv6, func(c *Config) *netip.Addr {
				return &ensureAmbient(c).ProbeSourceIPv6
			}),
		},
		{
			"pod_namespace", nameWant, NoDefault,
			"namespace of the node agent; the pods of the agent are never redirected; if set, STATUS " +
				"fails only for problems of the kernel, and logs problems that the agent repairs " +
				"(configuration and credentials)",
			name(func(c *Config) *string { return &c.Decide.AgentNamespace }),
		},
		{
			"agent_daemonset", nameWant, agentName, "name of the node agent's DaemonSet",
			name(func(c *Config) *string { return &c.Decide.AgentDaemonSet }),
		},
		{
			"proxy_container", nameWant, "istio-proxy", "name of the proxy's container",
			name(func(c *Config) *string { return &c.Decide.ProxyContainer }),
		},
		{
			"validation_container", nameWant, "istio-validation",
			"name of the init container whose arguments state the mesh's settings",
			name(func(c *Config) *string { return &c.Decide.ValidationContainer }),
		},
		{
			"unreadable_pods", "fail or skip", string(Fail),
			"what ADD does if the pod cannot be read: fail, or skip redirection",
			policy(func(c *Config) *Policy { return &c.UnreadablePods }),
		},
		{
			"api_budget", durationWant, "10s",
			"time limit for all attempts to read a pod from the API server; " +
				"a request to the node agent may take another second",
			duration(func(c *Config) *time.Duration { return &c.APIBudget }),
		},
		{
			"api_try_timeout", durationWant, "3s",
			"time limit for one attempt, not more than the limit for all attempts",
			duration(func(c *Config) *time.Duration { return &c.APITryTimeout }),
		},
		fromParameter("backend", func(c *Config, v *parameter.Values) {
			c.Backend = compat.BackendName(v.Backend)
		}),
		fromParameter("strict_istio", func(c *Config, v *parameter.Values) {
			if v.StrictIstio {
				v.Redirect.StrictIstio()
				c.Decide.Without = v.Redirect.Without
			}
		}),
		fromParameter("deviations_off", func(c *Config, v *parameter.Values) {
			if len(c.Decide.Without) == 0 { // otherwise strict_istio disables all of them
				c.Decide.Without = v.Redirect.Without
			}
		}),
		fromParameter("counters", func(c *Config, v *parameter.Values) {
			c.Decide.Counters = v.Redirect.Counters
		}),
		{
			"log_level", levelWant, "info",
			"the field plugin_log_level of early versions of istio-cni",
			level(func(c *Config) *options.Level { return &c.Log.Level }),
		},
		{
			"plugin_log_level", levelWant, "info", "minimum log level",
			level(func(c *Config) *options.Level { return &c.Log.Level }),
		},
		{
			logFileField, "an absolute path, or empty for none", "cni_agent_run_dir/" + logFile,
			"log file; messages are also sent to standard error and to the node agent",
			setLogFile,
		},
		{
			"log_file_max_mb", "1 to 1024", "10",
			"size in MiB at which the log file is rotated",
			number(func(c *Config) *int { return &c.Log.MaxMegabytes }, 1, 1024),
		},
		{
			"log_file_backups", "0 to 100", "1", "number of rotated log files to keep; if 0, all",
			number(func(c *Config) *int { return &c.Log.Backups }, 0, 100),
		},
		{
			"log_file_max_days", "0 to 3650", "2",
			"days for which rotated log files are kept; if 0, forever",
			number(func(c *Config) *int { return &c.Log.MaxDays }, 0, 3650),
		},
	}
}

// FieldNamed returns the field with the name. It panics if the name is unknown.
func FieldNamed(name string) Field {
	fields := Fields()
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		panic("config: no field " + name)
	}
	return fields[i]
}

// Allows reports whether the field allows the JSON value.
func (f Field) Allows(value json.RawMessage) bool { return len(f.set(new(Config), value)) == 0 }

// setFields sets the given fields in the order of the table. It returns the faults of their values,
// and of unknown fields that resemble a field of the table.
func setFields(c *Config, values map[string]json.RawMessage) rules.Faults {
	flat, faults := flatten(values)
	fields := Fields() // once, because each call builds the table
	for _, f := range fields {
		raw, ok := flat[f.Name]
		delete(flat, f.Name)
		// null means that the field is missing.
		if !ok || len(raw) == 0 || string(raw) == "null" {
			continue
		}
		for _, wrong := range f.set(c, raw) {
			faults = append(faults, rules.Fault{
				Field: f.Name, Value: shortValue(wrong), Allowed: f.Want,
			})
		}
	}
	for _, unknown := range slices.Sorted(maps.Keys(flat)) {
		if suggestion, found := resembledField(fields, unknown); found {
			faults = append(faults, rules.Fault{
				Field: strconv.Quote(unknown), Value: "this name", Allowed: suggestion,
			})
		}
	}
	return faults
}

// flatten moves the fields of the object kubernetes to the top level, with the prefix
// "kubernetes.".
func flatten(values map[string]json.RawMessage) (map[string]json.RawMessage, rules.Faults) {
	flat := maps.Clone(values)
	raw, ok := flat[earlyObject]
	if !ok {
		return flat, nil
	}
	delete(flat, earlyObject)
	var inner map[string]json.RawMessage
	if json.Unmarshal(raw, &inner) != nil {
		return flat, rules.Faults{{
			Field: earlyObject, Value: shortValue(string(raw)), Allowed: "an object",
		}}
	}
	for key, value := range inner {
		flat[earlyObject+"."+key] = value
	}
	return flat, nil
}

// maxValueLen is the maximum length in bytes of a value in an error.
const maxValueLen = 60

// shortValue returns a JSON value on one line, truncated for an error.
func shortValue(value string) string {
	return text.Truncate(strings.Join(strings.Fields(value), " "), maxValueLen)
}
