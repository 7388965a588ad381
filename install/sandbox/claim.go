package sandbox

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A claim states that a pod's sandbox has the network namespace at a path of the node.
type claim struct {
	pod         Pod
	containerID string
	path        string
	time        time.Time
}

// claims contains the claims of one source.
type claims struct {
	byUID  map[string][]claim // the newest first
	byPath map[string]claim   // the newest
}

func newClaims() claims { return claims{map[string][]claim{}, map[string]claim{}} }

// add adds a claim.
func (c *claims) add(a claim) {
	list := c.byUID[a.pod.UID]
	at, _ := slices.BinarySearchFunc(list, a, func(b, a claim) int {
		return a.time.Compare(b.time)
	})
	c.byUID[a.pod.UID] = slices.Insert(list, at, a)
	if known, ok := c.byPath[a.path]; !ok || a.time.After(known.time) {
		c.byPath[a.path] = a
	}
}

// newest returns the newest claim of a pod, or an empty one.
func (c *claims) newest(uid string) claim {
	if list := c.byUID[uid]; len(list) > 0 {
		return list[0]
	}
	return claim{}
}

// normal returns the canonical form of a path of the node: /var/run is a link to /run.
func normal(path string) string {
	path = filepath.Clean(path)
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + rest
	}
	return path
}
