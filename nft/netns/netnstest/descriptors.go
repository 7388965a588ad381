package netnstest

import (
	"os"
	"testing"
)

// Descriptors returns the number of open descriptors of the process. If it fails, it fails the test
// and returns 0. It may be called by any goroutine of the test.
func Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	return len(entries)
}
