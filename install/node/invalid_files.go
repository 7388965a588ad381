package node

import (
	"maps"
	"time"
)

// invalidTolerance is the time for which a file of a healthy node may be invalid before it is
// reported, because a program may be writing it. It is less than one second, within which the agent
// must report changes by other programs.
const invalidTolerance = 500 * time.Millisecond

// invalidFiles contains the time when each invalid file became invalid, by name. The time is zero
// if the node was not healthy then. It is not safe for concurrent use.
type invalidFiles map[string]time.Time

// markIncomplete sets [File.Incomplete] of files that became invalid less than invalidTolerance
// ago, and reports whether there are any. If the node was not healthy before, a file that becomes
// invalid is not marked, so that an initial problem is reported immediately.
func (s invalidFiles) markIncomplete(now time.Time, files map[string]File, healthy bool) bool {
	maps.DeleteFunc(s, func(name string, _ time.Time) bool {
		_, exists := files[name]
		return !exists
	})
	anyIncomplete := false
	for name, f := range files {
		if isValid(name, f) {
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
		anyIncomplete = anyIncomplete || f.Incomplete
	}
	return anyIncomplete
}
