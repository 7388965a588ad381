package bypass

import (
	"slices"
	"time"
)

// countedPods contains the pods that were counted as bypasses, each with the creation time of its
// last counted sandbox. The pod that was added first is the first one.
type countedPods []countedPod

type countedPod struct {
	uid     string
	created time.Time
}

// maxCounted is the maximum number of counted pods. The kubelet's default for the pods of a node is
// 110.
const maxCounted = 1024

// contains reports whether the sandbox of a pod was counted. Another sandbox of the pod is created
// at least reloadTime later.
func (c countedPods) contains(uid string, created time.Time) bool {
	return slices.ContainsFunc(c, func(p countedPod) bool {
		return p.uid == uid && created.Before(p.created.Add(reloadTime))
	})
}

// add adds the sandbox of a pod. If there are too many pods, it removes the first one.
func (c *countedPods) add(uid string, created time.Time) {
	*c = slices.DeleteFunc(*c, func(p countedPod) bool { return p.uid == uid })
	if len(*c) == maxCounted {
		*c = slices.Delete(*c, 0, 1)
	}
	*c = append(*c, countedPod{uid, created})
}

// shift corrects the times after the clock was set forward by step. The creation time of a sandbox
// that was found by a process changes with the clock, and the creation time of a mounted namespace
// does not. Sandboxes that are created after the step are later than both times.
func (c countedPods) shift(step time.Duration) {
	for i := range c {
		c[i].created = c[i].created.Add(step)
	}
}
