package node_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/file/filetest"
	"github.com/sluice-mesh/sluice/install/node"
)

// timeless reports whether this is a process in which a node can run in a bubble of synctest: without inotify, whose reader would keep the
// bubble's time from passing. There a test wakes the node as an event would. What a pass takes counts for nothing; what it waits does.
func timeless(t *testing.T) bool {
	t.Helper()
	if !filetest.Private(t) {
		return false
	}
	filetest.Deny(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE)
	return true
}

func TestWhatOthersDoIsPutRightWithinASecond(t *testing.T) {
	if !timeless(t) {
		return
	}
	for how, event := range map[string]struct {
		tell   func(n *node.Node)
		within time.Duration
	}{
		"of an event":                     {(*node.Node).Wake, time.Second},
		"of a look, where none are to be": {func(*node.Node) {}, time.Second + 100*time.Millisecond},
	} {
		for name, d := range disturbances {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t)
					n, statuses := b.disturbed(d)
					begun := time.Now()
					d.do(b)
					event.tell(n)
					await(t, statuses, "put right", d.right(b))
					if took := time.Since(begun); took > event.within {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// A rival that writes all the time is named within a second, and has the last word no longer than that.
func TestARivalIsNamedAndOverWithinASecond(t *testing.T) {
	if !timeless(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		n, statuses := b.disturbed(disturbance{})
		begun := time.Now()
		stop := every(100*time.Millisecond, func() {
			b.put("conf/10-a.conflist", list("calico"))
			n.Wake()
		})
		await(t, statuses, "named", func(s node.Status) bool { return len(s.Rivals) > 0 })
		if took := time.Since(begun); took > time.Second {
			t.Errorf("named after %v", took)
		}
		stop()
		begun = time.Now()
		b.put("conf/10-a.conflist", list("calico"))
		n.Wake()
		await(t, statuses, "put right", func(node.Status) bool { return carriesFirst(b) })
		if took := time.Since(begun); took > time.Second {
			t.Errorf("put right after %v", took)
		}
	})
}

// Whoever writes a file may take a moment. A file that stays invalid is told without a further event.
func TestWhatCannotBePutRightIsToldWithinASecond(t *testing.T) {
	if !timeless(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		n, statuses := b.disturbed(disturbance{})
		begun := time.Now()
		b.put("conf/05-x.conflist", "{")
		n.Wake()
		s := await(t, statuses, "told", func(s node.Status) bool { return !s.Installed() })
		if took := time.Since(begun); took > time.Second || !slices.Contains(reasons(s), node.Unreadable) {
			t.Errorf("after %v: %v", took, s.Problems)
		}
	})
}
