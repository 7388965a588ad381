package node

import "time"

// SetClock sets the clock of a node that has not been used yet.
func (n *Node) SetClock(now func() time.Time) { n.now = now }

// Update changes the settings and wakes [Node.Run]. The directories must stay the same.
func (n *Node) Update(s Settings) error {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settings = s
	n.Wake()
	return nil
}
