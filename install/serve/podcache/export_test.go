package podcache

import "testing"

// SetMaxListed sets maxListed until the test ends.
func SetMaxListed(t testing.TB, n int) {
	before := maxListed
	maxListed = n
	t.Cleanup(func() { maxListed = before })
}
