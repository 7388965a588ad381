package netnstest

import (
	"os"
	"testing"
)

// Descriptors returns the number of open descriptors of the process, including the one that it
// opens itself. An error fails the test without ending it, so that any goroutine of the test may
// call Descriptors.
func Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	return len(entries)
}
