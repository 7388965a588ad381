package rulestest

import (
	"testing"
	"time"
)

// eventuallyLimit is the maximum wait for a condition. It is far longer than any condition takes on
// a busy machine.
const eventuallyLimit = time.Minute

// Eventually checks a condition every pollInterval until it is met. It fails the test after
// eventuallyLimit.
func Eventually(t testing.TB, condition string, met func() bool) {
	t.Helper()
	wait(t, met, func() { t.Fatalf("not met after %s: %s", eventuallyLimit, condition) })
}

// EventuallySucceeds repeats an attempt until it returns nil. It fails the test with the last error
// after eventuallyLimit.
func EventuallySucceeds(t testing.TB, description string, attempt func() error) {
	t.Helper()
	var err error
	wait(t,
		func() bool { err = attempt(); return err == nil },
		func() { t.Fatalf("not successful after %s: %s: %v", eventuallyLimit, description, err) })
}

// pollInterval is the time between two checks of a condition.
const pollInterval = 2 * time.Millisecond

// wait calls met every pollInterval until it returns true, and fail after eventuallyLimit.
func wait(t testing.TB, met func() bool, fail func()) {
	t.Helper()
	for end := time.Now().Add(eventuallyLimit); !met(); time.Sleep(pollInterval) {
		if time.Now().After(end) {
			fail()
		}
	}
}
