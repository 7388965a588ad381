package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// readSettings returns the settings of an environment, to which it adds missing required variables.
func readSettings(t *testing.T, env map[string]string) settings.Values {
	t.Helper()
	all := map[string]string{
		"NODE_NAME": "node-1", "POD_NAME": "sluice-node-x", "POD_NAMESPACE": "istio-system",
	}
	for name, value := range env {
		all[name] = value
	}
	v, err := settings.Read(func(name string) (string, bool) {
		value, set := all[name]
		return value, set
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestElementFollowsTheSettings checks that the plugin's configuration corresponds to the settings.
func TestElementFollowsTheSettings(t *testing.T) {
	text, c, err := agent.Element(readSettings(t, map[string]string{
		"EXCLUDE_NAMESPACES": "kube-system,backup", "SLUICE_BACKEND": "legacy",
		"SLUICE_UNREADABLE_PODS": "skip",
		"SLUICE_API_BUDGET":      "20s", "SLUICE_API_TRY_TIMEOUT": "5s",
		"SLUICE_LOG_LEVEL": "debug", "SLUICE_DAEMONSET": "mesh-node",
		"SLUICE_ENABLEMENT_SELECTORS": `[{"podSelector":{"matchLabels":{"mesh":"on"}}}]`,
		"CNI_AGENT_RUN_DIR":           "/run/mesh",
		"SLUICE_DEVIATIONS_OFF":       "nat-first",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text),
		`{"type":"sluice-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true},`) {
		t.Errorf("the element begins with other fields: %s", text)
	}
	type fields struct {
		Kubeconfig, Backend, Policy, Namespace, DaemonSet string
		Level                                             options.Level
		Budget, Try                                       time.Duration
		Excluded                                          []string
		Selectors, Without                                int
	}
	want := fields{
		"/run/mesh/sluice-cni-kubeconfig", "legacy", "skip", "istio-system", "mesh-node",
		options.Debug,
		20 * time.Second, 5 * time.Second,
		[]string{"kube-system", "backup"},
		1, 1,
	}
	got := fields{
		c.Kubeconfig, string(c.Backend), string(c.UnreadablePods), c.Decide.AgentNamespace,
		c.Decide.AgentDaemonSet, c.Log.Level,
		c.APIBudget, c.APITryTimeout, c.Decide.ExcludeNamespaces, len(c.Decide.Selectors),
		len(c.Decide.Without),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the parsed configuration (-want +got):\n%s", diff)
	}
}

func TestElementThatThePluginWouldRejectIsAnError(t *testing.T) {
	_, _, err := agent.Element(readSettings(t, map[string]string{"SLUICE_DAEMONSET": "Mesh_Node"}))
	if err == nil || !strings.Contains(err.Error(), "agent_daemonset") {
		t.Errorf("Element returns the error %v, want an error about agent_daemonset", err)
	}
}

func TestNodeSettings(t *testing.T) {
	v := readSettings(t, map[string]string{
		"CNI_CONF_NAME": "10-calico.conflist", "SLUICE_RESYNC_INTERVAL": "1m",
		"POD_NAMESPACE": "istio-system", "SLUICE_DAEMONSET": "sluice-node",
	})
	s := agent.NodeSettings(v, []byte(`{"type":"sluice-cni"}`), "/usr/local/bin/sluice-node")
	if err := s.WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"/host/var/lib/cni/results", "/host/var/lib/cni/cache/results"},
		s.ResultDirs); diff != "" {
		t.Errorf("ResultDirs (-want +got):\n%s", diff)
	}
	if s.Binaries["sluice-cni"] != "/opt/cni/bin/sluice-cni" ||
		s.CNIConfFileName != "10-calico.conflist" || s.Resync != time.Minute || !s.Chained {
		t.Errorf("the settings do not correspond to the environment: %+v", s)
	}
	if !s.IsAgentPod("istio-system", "sluice-node-x7k2p") || s.IsAgentPod("shop", "sluice-node-x7k2p") {
		t.Error("uninstallation would wait for the agent's own sandbox, or not wait for another one")
	}
}
