package trace

// Waiting reports whether the collector contains packets.
func (c *Collector) Waiting() bool { return len(c.packets) > 0 }
