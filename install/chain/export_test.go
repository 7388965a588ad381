package chain

// Bytes returns the list's text. It must not be changed.
func (l *List) Bytes() []byte { return l.data }
