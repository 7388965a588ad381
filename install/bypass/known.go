package bypass

import (
	"slices"
	"time"
)

// knownSandboxes contains pods, each with the creation time of its last known sandbox or a later
// time. The pod that was added first is the first one.
type knownSandboxes []knownSandbox

type knownSandbox struct {
	uid     string
	created time.Time
}

// maxKnown is the maximum number of known pods. The kubelet's default for the pods of a node is
// 110.
const maxKnown = 1024

// contains reports whether the sandbox of a pod is known. Another sandbox of the pod is created at
// least reloadTime later.
func (k knownSandboxes) contains(uid string, created time.Time) bool {
	return slices.ContainsFunc(k, func(s knownSandbox) bool {
		return s.uid == uid && created.Before(s.created.Add(reloadTime))
	})
}

// add adds the sandbox of a pod. If there are too many pods, it removes the first one.
func (k *knownSandboxes) add(uid string, created time.Time) {
	*k = slices.DeleteFunc(*k, func(s knownSandbox) bool { return s.uid == uid })
	if len(*k) == maxKnown {
		*k = slices.Delete(*k, 0, 1)
	}
	*k = append(*k, knownSandbox{uid, created})
}

// shift corrects the times after the clock was set forward by step. If a sandbox was found by a
// process, its creation time changes with the clock; if it was found by a mounted namespace, its
// creation time does not change. contains accepts both times, because both are before the creation
// of sandboxes after the step.
func (k knownSandboxes) shift(step time.Duration) {
	for i := range k {
		k[i].created = k[i].created.Add(step)
	}
}
