package node_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// timeless reports whether this is a process in which a node can run in a bubble of synctest:
// without inotify, whose reader would keep the bubble's time from passing. There a test wakes the
// node as an event would. What a pass takes counts for nothing; what it waits does.
func timeless(t *testing.T) bool {
	t.Helper()
	if !filetest.Private(t) {
		return false
	}
	filetest.Deny(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE)
	return true
}

// awaitWithin is await in a bubble, where no time passes but that for which a node waits.
func awaitWithin(
	t testing.TB, limit time.Duration, statuses <-chan node.Status, what string, ok func(
		node.Status,
	) bool,
) node.Status {
	t.Helper()
	begun := time.Now()
	s := await(t, statuses, what, ok)
	if took := time.Since(begun); took > limit {
		t.Errorf("%s after %v", what, took)
	}
	return s
}

func TestForeignChangesAreCorrectedWithinASecond(t *testing.T) {
	if !timeless(t) {
		return
	}
	for how, event := range map[string]struct {
		tell   func(n *node.Node)
		within time.Duration
	}{
		"of an event": {(*node.Node).Wake, time.Second},
		"of a look, where none are to be": {
			func(*node.Node) {}, time.Second + 100*time.Millisecond,
		},
	} {
		for name, d := range disturbances {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newTestNode(t)
					n, statuses := b.disturbed(d)
					d.do(b)
					event.tell(n)
					awaitWithin(t, event.within, statuses, "put right", d.right(b))
				})
			})
		}
	}
}

// A conflicting writer that writes all the time is named within a second, and has the last word no
// longer than that.
func TestConflictingWriterIsNamedAndOvercomeWithinASecond(t *testing.T) {
	if !timeless(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newTestNode(t)
		n, statuses := b.disturbed(disturbance{})
		stop := every(100*time.Millisecond, func() {
			b.put("conf/10-a.conflist", list("calico"))
			n.Wake()
		})
		awaitWithin(t, time.Second, statuses, "named", func(s node.Status) bool {
			return len(s.ConflictingWriters) > 0
		})
		stop()
		b.put("conf/10-a.conflist", list("calico"))
		n.Wake()
		awaitWithin(t, time.Second, statuses, "put right", func(node.Status) bool {
			return carriesFirst(b)
		})
	})
}

// Whoever writes a file may take a moment. A file that stays invalid is told without a further
// event.
func TestUnrepairableDriftIsReportedWithinASecond(t *testing.T) {
	if !timeless(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := newTestNode(t)
		n, statuses := b.disturbed(disturbance{})
		b.put("conf/05-x.conflist", "{")
		n.Wake()
		s := awaitWithin(t, time.Second, statuses, "told", func(s node.Status) bool {
			return !s.Installed()
		})
		if !slices.Contains(reasons(s), node.Unreadable) {
			t.Errorf("%v", s.Problems)
		}
	})
}
