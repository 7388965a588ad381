package hostrules_test

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// If roleVariable is set, the test binary waits for the end of its input instead of testing.
const roleVariable = "SLUICE_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
