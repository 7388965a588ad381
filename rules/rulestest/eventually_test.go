package rulestest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestEventuallyReturnsWhenTheConditionIsMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		rulestest.Eventually(t, "ten seconds have passed", func() bool {
			return time.Since(begin) >= 10*time.Second
		})
		if elapsed := time.Since(begin); elapsed > 11*time.Second {
			t.Errorf("Eventually returned after %s, want at most 11s", elapsed)
		}
	})
}

func TestEventuallySucceedsFailsWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := failures{TB: t}
		func() {
			defer func() { _ = recover() }()
			rulestest.EventuallySucceeds(&failed, "connection", func() error {
				return errors.New("refused")
			})
		}()
		if len(failed.messages) != 1 || !strings.HasSuffix(failed.messages[0], "connection: refused") {
			t.Errorf("failures %q, want one that ends with the description and the error",
				failed.messages)
		}
	})
}

// failures records failures. Fatalf ends the caller with a panic.
type failures struct {
	testing.TB
	messages []string
}

func (f *failures) Helper() {}

func (f *failures) Fatalf(format string, args ...any) {
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
	panic("failed")
}
