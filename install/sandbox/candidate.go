package sandbox

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A candidate is a network namespace at a path on the node that, according to a source, is a pod's
// sandbox.
type candidate struct {
	pod         Pod
	containerID string
	path        string
	time        time.Time // of the ADD or of the cached result
}

// candidates contains the candidates of one source.
type candidates struct {
	byUID  map[string][]candidate // the newest first
	byPath map[string]candidate   // the newest of each path
}

func newCandidates() candidates {
	return candidates{map[string][]candidate{}, map[string]candidate{}}
}

// add adds a candidate to byUID, and to byPath if it is the newest candidate with its path.
func (c *candidates) add(added candidate) {
	ofPod := c.byUID[added.pod.UID]
	at, _ := slices.BinarySearchFunc(ofPod, added, func(a, b candidate) int {
		return b.time.Compare(a.time)
	})
	c.byUID[added.pod.UID] = slices.Insert(ofPod, at, added)
	if existing, ok := c.byPath[added.path]; !ok || added.time.After(existing.time) {
		c.byPath[added.path] = added
	}
}

// newest returns the newest candidate of a pod, or the zero value.
func (c *candidates) newest(uid string) candidate {
	if ofPod := c.byUID[uid]; len(ofPod) > 0 {
		return ofPod[0]
	}
	return candidate{}
}

// canonicalPath returns a path on the node with /run in place of /var/run, which is a link to /run
// on a node.
func canonicalPath(path string) string {
	path = filepath.Clean(path)
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + rest
	}
	return path
}
