package node

import (
	"maps"
	"time"

	"github.com/sluice-mesh/sluice/install/chain"
)

// invalidTolerance is the time for which a file of a healthy node may be invalid before it is
// reported: a program may be writing it, and the next event reports its end. It is less than one
// second, within which the agent must report changes of other programs.
const invalidTolerance = 500 * time.Millisecond

// invalidFiles contains the times since when files are invalid, by name. It is not safe for
// concurrent use.
type invalidFiles map[string]time.Time

// mark marks the files that are settling, and reports whether there are any. If the node was not
// healthy before, no file is settling, so that an initial problem is always reported.
func (s invalidFiles) mark(now time.Time, files map[string]File, healthy bool) bool {
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
			if healthy {
				since = now
			}
			s[name] = since
		}
		f.Incomplete = now.Sub(since) < invalidTolerance
		files[name] = f
		pending = pending || f.Incomplete
	}
	return pending
}
