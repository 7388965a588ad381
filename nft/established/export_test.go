package established

import "testing"

// SetMaxSockets sets maxSockets until the test ends.
func SetMaxSockets(t *testing.T, n int) {
	before := maxSockets
	maxSockets = n
	t.Cleanup(func() { maxSockets = before })
}
