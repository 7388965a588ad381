package podcache

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// podBackoff is the delay before watching the node's pods again after a failure. It is random, from
// half a second to five seconds, and does not grow: client-go's default delays grow to a minute, in
// which the audit would not receive new pods.
//
// During an outage an agent sends a request every 2.75 s on average. The agents of 10,000 nodes
// then make 3,600 connections per second, which an unavailable server rejects. When the server is
// available again, they send 2,200 requests for lists per second for five seconds. Each list
// contains the pods of one node; API servers have an index of pods by node. API priority and
// fairness ranks these requests after the requests of the nodes.
var podBackoff = wait.Backoff{
	Duration: minDelay, Jitter: float64(maxDelay/minDelay) - 1,
}

const (
	minDelay = 500 * time.Millisecond
	maxDelay = 5 * time.Second
)

// listTimeout is the time limit for a list, for the start of a watch, and for the list that a watch
// sends first. Without a limit each would wait indefinitely for a slow response. A list of the
// namespaces of a large cluster takes seconds. If the API server does not end a watch in time, the
// cache ends the watch after this additional time.
const listTimeout = time.Minute

// namespaceBackoff is nil, which selects client-go's default delays. They grow from about a second
// to a minute: the list of all namespaces of the cluster is too large to be requested by every node
// every few seconds. A namespace that is not cached is requested as a single object.
var namespaceBackoff *wait.Backoff

// errListMissing is the error of a watch that must begin with a list and does not send it.
var errListMissing = fmt.Errorf("the API server has accepted the watch, but has not sent the list "+
	"within %v", listTimeout)

// A boundedWatch is a watch that calls end when it is stopped. The reflector stops each watch that
// ends, even after an error, before it starts the next one.
type boundedWatch struct {
	watch.Interface
	end func()
}

// Stop implements [watch.Interface].
func (w boundedWatch) Stop() {
	w.Interface.Stop()
	w.end()
}

// watch keeps a store up to date until the context ends.
func (c *Cache) watch(
	ctx context.Context, resource string, selector fields.Selector, backoff *wait.Backoff, s *store,
) {
	// Retries of client-go are disabled: after the reset of a connection client-go would repeat the
	// request up to ten times, each time after exactly a second. All agents of a cluster would do
	// so at the same time, without the random delay of backoff.
	request := func(o metav1.ListOptions) *rest.Request {
		o.FieldSelector = selector.String()
		return c.client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec).
			MaxRetries(0)
	}
	// record records the error of a request, and reports a lasting failure at most every
	// reportInterval.
	record := func(err error) {
		err = fmt.Errorf("watch %s: %w", resource, err)
		if s.setWatchError(err) && ctx.Err() == nil {
			c.options.WatchFailed(resource, err)
		}
	}
	received := 0 // number of objects on the pages of the list so far
	// listMissing is set if the last watch with a list has not sent the list.
	var listMissing atomic.Bool
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(
			ctx context.Context, o metav1.ListOptions,
		) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			if o.Continue == "" {
				received = 0
			}
			list, err := readList(ctx, request(o), resource, received)
			if err != nil {
				record(err) // a success is recorded only when the following watch is established
				return nil, err
			}
			received += len(list.Items)
			return list, nil
		},
		WatchFuncWithContext: func(
			ctx context.Context, o metav1.ListOptions,
		) (watch.Interface, error) {
			sendsList := o.SendInitialEvents != nil && *o.SendInitialEvents
			if sendsList && listMissing.Swap(false) {
				return nil, errListMissing // the reflector then requests the list without a watch
			}
			ctx, cancel := context.WithCancel(ctx)
			startTimer := time.AfterFunc(listTimeout, cancel)
			o.Watch = true
			w, err := request(o).Watch(ctx)
			if !startTimer.Stop() || err != nil {
				cancel()
			}
			if err != nil {
				record(err)
				return nil, err
			}
			s.watchStarted(sendsList)
			listTimer := time.AfterFunc(listTimeout, func() {
				if s.recordMissingList() {
					listMissing.Store(true)
					record(errListMissing)
					cancel()
				}
			})
			stopEndTimer := func() bool { return false }
			if o.TimeoutSeconds != nil {
				watchTime := time.Duration(*o.TimeoutSeconds) * time.Second
				stopEndTimer = time.AfterFunc(watchTime+listTimeout, cancel).Stop
			}
			count := 0
			if !sendsList {
				count = s.count()
			}
			return boundedWatch{limitObjects(w, count), func() {
				listTimer.Stop()
				stopEndTimer()
				cancel()
				s.watchEnded()
			}}, nil
		},
	}
	options := cache.ReflectorOptions{Name: "podcache", TypeDescription: resource, Backoff: backoff}
	cache.NewReflectorWithOptions(listWatch, &object{}, s, options).RunWithContext(ctx)
}
