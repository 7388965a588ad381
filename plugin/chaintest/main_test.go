package chaintest_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/plugin"
)

// TestMain runs the plugin if the executable has the plugin's name: the tests execute the code that
// they are built with.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == pluginName {
		os.Exit(plugin.Main("test"))
	}
	// With the race detector every execution of the plugin would sleep for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// repetitions returns the number of repetitions of a randomized test.
func repetitions(short, long int) int {
	if os.Getenv("SLUICE_LONG") == "1" {
		return long
	}
	return short
}
