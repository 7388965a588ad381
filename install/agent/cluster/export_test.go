package cluster

import "time"

// SetUpdateIntervals sets the shortest and the longest time between two updates of a repeated
// event.
func (c *Client) SetUpdateIntervals(shortest, longest time.Duration) {
	c.series.minInterval, c.series.maxInterval = shortest, longest
}

// SetUpdateTimeout sets the time limit of an update of a repeated event.
func (c *Client) SetUpdateTimeout(limit time.Duration) { c.series.updateTime = limit }
