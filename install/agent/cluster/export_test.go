package cluster

import "time"

// SetPauses sets the shortest and the longest time between two writes of a repeated event.
func (c *Client) SetPauses(first, longest time.Duration) {
	c.series.first, c.series.longest = first, longest
}

// SetUpdateTime sets the time limit of an update of a repeated event.
func (c *Client) SetUpdateTime(limit time.Duration) { c.series.updateTime = limit }
