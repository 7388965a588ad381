package cluster

import "time"

// SetPauses sets the least and the greatest time between two writes of an event that is repeated.
func (c *Client) SetPauses(first, longest time.Duration) {
	c.series.first, c.series.longest = first, longest
}
