package node

import (
	"maps"
	"time"

	"github.com/sluice-mesh/sluice/install/chain"
)

// settle is how long a file of a node in order may be invalid before that counts: its owner may be
// writing it at this moment, and the next event says that it is done. Less than the second in which
// what others do is to be told.
const settle = 500 * time.Millisecond

// settling follows since when files are not valid. Not safe for concurrent use.
type settling map[string]time.Time

// mark says which files are settling, and returns whether any is. Where the node was not in order
// before, none is given any time: so what was wrong from the beginning is never taken to be right.
func (s settling) mark(now time.Time, files map[string]File, inOrder bool) bool {
	maps.DeleteFunc(s, func(name string, _ time.Time) bool {
		_, exists := files[name]
		return !exists
	})
	pending := false
	for name, f := range files {
		if _, err := chain.Read(chain.File{Name: name, Data: f.Data, Err: f.Err}); err == nil {
			delete(s, name)
			continue
		}
		since, known := s[name]
		if !known {
			if inOrder {
				since = now
			}
			s[name] = since
		}
		f.Settling = now.Sub(since) < settle
		files[name] = f
		pending = pending || f.Settling
	}
	return pending
}
