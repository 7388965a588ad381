package agent

import (
	"encoding/json"
	"fmt"

	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/config"
)

// pluginType is the plugin's type, which is the name of its executable.
const pluginType = "sluice-cni"

// element is the plugin's element in a network configuration list. The fields have the order of the
// file.
type element struct {
	Type                string          `json:"type"`
	Capabilities        map[string]bool `json:"capabilities"`
	RunDir              string          `json:"cni_agent_run_dir"`
	LogLevel            string          `json:"plugin_log_level"`
	PodNamespace        string          `json:"pod_namespace"`
	DaemonSet           string          `json:"agent_daemonset"`
	ExcludeNamespaces   []string        `json:"exclude_namespaces,omitempty"`
	EnablementSelectors json.RawMessage `json:"enablement_selectors,omitempty"`
	AmbientEnabled      bool            `json:"ambient_enabled,omitempty"`
	AmbientSelectors    json.RawMessage `json:"ambient_enablement_selectors,omitempty"`
	AmbientDNSCapture   *bool           `json:"ambient_dns_capture,omitempty"`
	AmbientIPv6         *bool           `json:"ambient_ipv6,omitempty"`
	ProbeSourceIPv4     string          `json:"host_probe_snat_ip,omitempty"`
	ProbeSourceIPv6     string          `json:"host_probe_snat_ipv6,omitempty"`
	Backend             string          `json:"backend"`
	StrictIstio         bool            `json:"strict_istio,omitempty"`
	DeviationsOff       []string        `json:"deviations_off,omitempty"`
	Counters            bool            `json:"counters,omitempty"`
	UnreadablePods      string          `json:"unreadable_pods"`
	APIBudget           string          `json:"api_budget"`
	APITryTimeout       string          `json:"api_try_timeout"`
}

// Element returns the plugin's element for the settings, as JSON and parsed. The error names the
// fields that the plugin would reject.
func Element(v settings.Values) (json.RawMessage, *config.Config, error) {
	e := element{
		Type: pluginType,
		// The plugin identifies the agent's own pod by the annotations.
		Capabilities:      map[string]bool{"io.kubernetes.cri.pod-annotations": true},
		RunDir:            v.Text("CNI_AGENT_RUN_DIR"),
		LogLevel:          v.Text("SLUICE_LOG_LEVEL"),
		PodNamespace:      v.Text("POD_NAMESPACE"),
		DaemonSet:         v.Text("SLUICE_DAEMONSET"),
		ExcludeNamespaces: v.Names("EXCLUDE_NAMESPACES"),
		Backend:           v.Text("SLUICE_BACKEND"),
		StrictIstio:       v.Bool("SLUICE_STRICT_ISTIO"),
		DeviationsOff:     v.Names("SLUICE_DEVIATIONS_OFF"),
		Counters:          v.Bool("SLUICE_COUNTERS"),
		UnreadablePods:    v.Text("SLUICE_UNREADABLE_PODS"),
		APIBudget:         v.Text("SLUICE_API_BUDGET"),
		APITryTimeout:     v.Text("SLUICE_API_TRY_TIMEOUT"),
	}
	if selectors := v.Text("SLUICE_ENABLEMENT_SELECTORS"); selectors != "[]" {
		e.EnablementSelectors = json.RawMessage(selectors)
	}
	if v.Bool("AMBIENT_ENABLED") {
		e.setAmbient(v)
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, nil, fmt.Errorf("plugin configuration: %w", err)
	}
	// The runtime adds these fields when it calls the plugin.
	withHeader := struct {
		element
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
	}{e, "1.0.0", "check"}
	complete, err := json.Marshal(withHeader)
	if err != nil {
		return nil, nil, fmt.Errorf("plugin configuration: %w", err)
	}
	parsed, err := config.Parse(complete)
	if err != nil {
		return nil, nil, fmt.Errorf("plugin configuration: %w", err)
	}
	return data, parsed, nil
}

// setAmbient sets the fields of ambient mode.
func (e *element) setAmbient(v settings.Values) {
	dns, ipv6 := v.Bool("AMBIENT_DNS_CAPTURE"), v.Bool("AMBIENT_IPV6")
	e.AmbientEnabled, e.AmbientDNSCapture, e.AmbientIPv6 = true, &dns, &ipv6
	e.ProbeSourceIPv4 = v.Text("HOST_PROBE_SNAT_IP")
	e.ProbeSourceIPv6 = v.Text("HOST_PROBE_SNAT_IPV6")
	if selectors := v.Text("AMBIENT_ENABLEMENT_SELECTOR"); selectors != "" {
		e.AmbientSelectors = json.RawMessage(selectors)
	}
}
