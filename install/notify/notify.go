// Package notify provides a channel that wakes a goroutine.
package notify

// A Channel wakes the goroutine that receives from it. Several calls of Notify before the goroutine
// receives wake it once. Use [New].
type Channel chan struct{}

// New returns a channel.
func New() Channel { return make(Channel, 1) }

// Notify wakes the receiver, or the next one if no goroutine is receiving. It does not block.
func (c Channel) Notify() {
	select {
	case c <- struct{}{}:
	default:
	}
}
