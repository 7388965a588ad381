package podcache

import (
	"fmt"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A limitedWatch is a watch that ends with an error once there are more than maxListed objects. The
// reflector then requests a list, which [readList] refuses for the same reason and whose error the
// cache reports. client-go limits only the size of an event.
type limitedWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    func()
}

// limitObjects limits the number of objects of a watch. count is the number of objects that are
// known before the first event.
func limitObjects(w watch.Interface, count int) watch.Interface {
	l := &limitedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	l.stop = sync.OnceFunc(func() { close(l.stopped) })
	go l.forward(count)
	return l
}

// ResultChan implements [watch.Interface].
func (l *limitedWatch) ResultChan() <-chan watch.Event { return l.events }

// Stop implements [watch.Interface].
func (l *limitedWatch) Stop() {
	l.stop()
	l.Interface.Stop()
}

// forward forwards events until the watch ends or there are too many objects.
func (l *limitedWatch) forward(count int) {
	defer close(l.events)
	for event := range l.Interface.ResultChan() {
		switch event.Type {
		case watch.Added:
			count++
		case watch.Deleted:
			count--
		}
		if count > maxListed {
			event = watch.Event{Type: watch.Error, Object: &metav1.Status{
				Status: metav1.StatusFailure, Reason: metav1.StatusReasonRequestEntityTooLarge,
				Code:    http.StatusRequestEntityTooLarge,
				Message: fmt.Sprintf("the watch has more than %d objects", maxListed),
			}}
		}
		select {
		case l.events <- event:
		case <-l.stopped:
			return
		}
		if event.Type == watch.Error {
			return
		}
	}
}
