package node_test

import (
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// denyInotify makes inotify fail for the rest of the process. If it returns false, the test ran in
// a child process, and the caller must return; see [filetest.Private].
//
// A node can run in a bubble of synctest only without inotify, whose reader would keep the clock of
// the bubble from advancing. In a bubble, the test wakes the node in place of an event. The clock
// advances only while the node waits, not while it computes.
func denyInotify(t *testing.T) bool {
	t.Helper()
	if !filetest.Private(t) {
		return false
	}
	filetest.Deny(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE)
	return true
}

// awaitWithin calls await, and fails the test if await takes longer than limit on the bubble's
// clock.
func awaitWithin(
	t testing.TB, limit time.Duration, statuses <-chan node.Status, description string,
	ok func(node.Status) bool,
) node.Status {
	t.Helper()
	start := time.Now()
	s := await(t, statuses, description, ok)
	if elapsed := time.Since(start); elapsed > limit {
		t.Errorf("%s after %v, want at most %v", description, elapsed, limit)
	}
	return s
}

func TestForeignChangesAreCorrectedWithinASecond(t *testing.T) {
	if !denyInotify(t) {
		return
	}
	for how, event := range map[string]struct {
		wake   func(n *node.Node)
		within time.Duration
	}{
		"after an event": {(*node.Node).Wake, time.Second},
		"by the timer, without events": {
			func(*node.Node) {}, time.Second + 100*time.Millisecond,
		},
	} {
		for name, c := range changeCases {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tn := newTestNode(t)
					n, statuses := tn.runUntilIdle(c)
					c.do(tn)
					event.wake(n)
					awaitWithin(t, event.within, statuses, "the change is corrected", c.isCorrected(tn))
				})
			})
		}
	}
}

// TestConflictingWriterIsNamedAndCorrectedWithinASecond checks that a conflicting writer that
// writes continuously is reported within a second, and that its last write is corrected within a
// second.
func TestConflictingWriterIsNamedAndCorrectedWithinASecond(t *testing.T) {
	if !denyInotify(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		tn := newTestNode(t)
		n, statuses := tn.runUntilIdle(changeCase{})
		stop := every(100*time.Millisecond, func() {
			tn.put("conf/10-a.conflist", list("calico"))
			n.Wake()
		})
		awaitWithin(t, time.Second, statuses, "the writer is reported", func(s node.Status) bool {
			return len(s.ConflictingWriters) > 0
		})
		stop()
		tn.put("conf/10-a.conflist", list("calico"))
		n.Wake()
		awaitWithin(t, time.Second, statuses, "the change is corrected", func(node.Status) bool {
			return primaryHasPlugin(tn)
		})
	})
}

// TestAgentsThatShareAStateDirectoryWriteSlowly checks that two agents with different elements
// rewrite each other's element only about twice a second.
func TestAgentsThatShareAStateDirectoryWriteSlowly(t *testing.T) {
	if !denyInotify(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		tn := newTestNode(t)
		first, firstStatuses := tn.runUntilIdle(changeCase{})
		s := tn.settings
		s.Element = []byte(elementV2)
		second := tn.nodeOf(s)
		secondStatuses := tn.runNode(second)
		writes, start := 0, time.Now()
		for time.Since(start) < 20*time.Second {
			select {
			case s := <-firstStatuses:
				writes += len(s.Changes)
			case s := <-secondStatuses:
				writes += len(s.Changes)
			}
			first.Wake()
			second.Wake()
		}
		if writes < 10 || writes > 60 {
			t.Errorf("%d writes in 20 s, want about 40", writes)
		}
	})
}

// TestUnrepairableDriftIsReportedWithinASecond covers a file that stays invalid after a write: it
// is reported without a further event.
func TestUnrepairableDriftIsReportedWithinASecond(t *testing.T) {
	if !denyInotify(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		tn := newTestNode(t)
		n, statuses := tn.runUntilIdle(changeCase{})
		tn.put("conf/05-x.conflist", "{")
		n.Wake()
		s := awaitWithin(t, time.Second, statuses, "the invalid file is reported", func(s node.Status) bool {
			return !s.Installed()
		})
		if !slices.Contains(reasons(s), node.InvalidConfiguration) {
			t.Errorf("problems %v, want InvalidConfiguration", s.Problems)
		}
	})
}

// TestAFailedWriteIsNotRepeatedAtOnce checks that the events that a failed attempt causes do not
// start the next attempt before retryInterval.
func TestAFailedWriteIsNotRepeatedAtOnce(t *testing.T) {
	if !denyInotify(t) {
		return
	}
	for name, row := range map[string]struct {
		file   string // a file system is mounted on it, so that it cannot be replaced
		before func(tn *testNode)
	}{
		"the executable":       {"bin/sluice-cni", func(*testNode) {}},
		"the no-op executable": {"bin/istio-cni", func(tn *testNode) { tn.cacheResult("one", "istio-cni") }},
		"the configuration":    {"conf/10-a.conflist", func(*testNode) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tn := newTestNode(t)
				tn.put("conf/10-a.conflist", list("calico"))
				row.before(tn)
				if _, err := os.Stat(tn.path(row.file)); err != nil {
					tn.put(row.file, script)
				}
				tn.must(unix.Mount(tn.path(row.file), tn.path(row.file), "", unix.MS_BIND, ""))
				unmount := sync.OnceFunc(func() { tn.must(unix.Unmount(tn.path(row.file), unix.MNT_DETACH)) })
				t.Cleanup(unmount)
				n := tn.node()
				statuses := tn.runNode(n)
				for range 3 {
					s := <-statuses
					if want := name == "the no-op executable"; s.Installed() != want {
						t.Errorf("installed %t, want %t; problems %v", s.Installed(), want, s.Problems)
					}
					start := time.Now()
					n.Wake()
					<-statuses
					if elapsed := time.Since(start); elapsed < time.Second {
						t.Errorf("the next attempt is %v after a failed one, want at least 1 s", elapsed)
					}
					n.Wake()
				}
				unmount()
				awaitWithin(t, time.Second, statuses, "the plugin is installed", func(s node.Status) bool {
					return len(s.Problems) == 1 // WatchFailed
				})
			})
		})
	}
}
