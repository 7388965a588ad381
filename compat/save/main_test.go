package save_test

import (
	"os"
	"testing"

	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestMain(m *testing.M) {
	rulestest.SetRapidChecks(os.Getenv)
	m.Run()
}
