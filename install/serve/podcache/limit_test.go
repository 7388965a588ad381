package podcache

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// TestLimitObjects checks that a watch ends with an error when it reports one object too many, and
// that objects of which it reports changes or the deletion do not count twice.
func TestLimitObjects(t *testing.T) {
	for _, row := range []struct {
		name     string
		known    int
		events   []watch.EventType
		isEnded  bool
		received int
	}{
		{"one object too many", maxListed - 1, []watch.EventType{watch.Added, watch.Added}, true, 2},
		{"a change", maxListed, []watch.EventType{watch.Modified}, false, 1},
		{
			"a deletion before an addition", maxListed,
			[]watch.EventType{watch.Deleted, watch.Added, watch.Modified},
			false, 3,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			source := watch.NewFakeWithChanSize(len(row.events), false)
			for _, e := range row.events {
				source.Action(e, &object{})
			}
			w := limitObjects(source, row.known)
			defer w.Stop()
			var last watch.Event
			for range row.received {
				last = <-w.ResultChan()
			}
			if err := apierrors.FromObject(last.Object); apierrors.IsRequestEntityTooLargeError(err) != row.isEnded ||
				(last.Type == watch.Error) != row.isEnded {
				t.Errorf("the last event is %s: %v; want an error: %t", last.Type, err, row.isEnded)
			}
			if row.isEnded {
				if e, ok := <-w.ResultChan(); ok {
					t.Errorf("the event %s follows the error", e.Type)
				}
			}
		})
	}
}

// TestLimitedWatchIsStopped checks that a watch whose events nobody receives ends when it is
// stopped. TestMain detects a goroutine that does not end.
func TestLimitedWatchIsStopped(*testing.T) {
	source := watch.NewFakeWithChanSize(2, false)
	source.Add(&object{})
	w := limitObjects(source, 0)
	w.Stop()
	w.Stop()
}
