package cluster

import "time"

// SetPauses sets the shortest and the longest time between two writes of a repeated event.
func (c *Client) SetPauses(first, longest time.Duration) {
	c.series.first, c.series.longest = first, longest
}
