package agent_test

import (
	"os"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/settings"
)

// TestUninstallRemovesTheKubeconfigAlthoughRulesRemain uninstalls the plugin from a node whose
// network namespace cannot be opened. Uninstall must report that the rules for probes remain, and
// still remove the kubeconfig.
func TestUninstallRemovesTheKubeconfigAlthoughRulesRemain(t *testing.T) {
	tn := newTestNode(t)
	tn.env["AMBIENT_ENABLED"] = "true"
	tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.path("proc")
	v, err := settings.Read(func(name string) (string, bool) {
		value, ok := tn.env[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	_, parsed, err := agent.Element(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(parsed.Kubeconfig, []byte("credentials"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := agent.Uninstall(t.Context(), v, tn.path("image/noop"), zap.NewNop()); err == nil {
		t.Error("Uninstall returns no error, want one about the rules for probes")
	}
	if _, err := os.Stat(parsed.Kubeconfig); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig after Uninstall: %v, want that it does not exist", err)
	}
}
