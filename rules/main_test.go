package rules_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestMain(m *testing.M) {
	if err := rulestest.SetChecks(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}
