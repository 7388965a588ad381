package node

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
