package plugin_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin"
)

// TestMain runs the plugin if a runtime calls it: tests execute their own executable.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(plugin.Main("test"))
	}
	goleak.VerifyTestMain(m)
}
