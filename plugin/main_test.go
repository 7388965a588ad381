package plugin_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin"
)

// TestMain is the plugin itself where a runtime calls it: tests execute their own program.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(plugin.Main("test"))
	}
	goleak.VerifyTestMain(m)
}
