package node

import (
	"maps"
	"time"

	"github.com/sluice-mesh/sluice/install/chain"
)

// settle is the time for which a file of a healthy node may be invalid before this counts: its
// owner may be writing it, and the next event reports the end. It is less than the second within
// which changes of other programs must be reported.
const settle = 500 * time.Millisecond

// settling contains the times since when files are invalid. It is not safe for concurrent use.
type settling map[string]time.Time

// mark marks the files that are settling, and reports whether there are any. If the node was not
// healthy before, there are none, so that an initial problem is always reported.
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
