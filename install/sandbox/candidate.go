package sandbox

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A candidate is a network namespace at a path of the node that, according to a source, is a pod's
// sandbox.
type candidate struct {
	pod         Pod
	containerID string
	path        string
	time        time.Time
}

// candidates contains the candidates of one source.
type candidates struct {
	byUID  map[string][]candidate // the newest first
	byPath map[string]candidate   // the newest
}

func newCandidates() candidates { return candidates{map[string][]candidate{}, map[string]candidate{}} }

// add adds a candidate.
func (c *candidates) add(a candidate) {
	list := c.byUID[a.pod.UID]
	at, _ := slices.BinarySearchFunc(list, a, func(b, a candidate) int {
		return a.time.Compare(b.time)
	})
	c.byUID[a.pod.UID] = slices.Insert(list, at, a)
	if known, ok := c.byPath[a.path]; !ok || a.time.After(known.time) {
		c.byPath[a.path] = a
	}
}

// newest returns the newest candidate of a pod, or the zero value.
func (c *candidates) newest(uid string) candidate {
	if list := c.byUID[uid]; len(list) > 0 {
		return list[0]
	}
	return candidate{}
}

// canonicalPath returns the canonical form of a path of the node: /var/run is a link to /run.
func canonicalPath(path string) string {
	path = filepath.Clean(path)
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + rest
	}
	return path
}
