package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// The client requests that the API server end a watch after a random time between minWatchTime
	// and maxWatchTime (the values of client-go). This replaces dead connections, and the agents of
	// a cluster do not all watch again at the same time.
	minWatchTime = 5 * time.Minute
	maxWatchTime = 10 * time.Minute
	// replyTimeout is the time limit of a list request. If the API server does not end a watch
	// after the requested time, the client ends the watch after this additional time.
	replyTimeout = 30 * time.Second
)

// watchBackoff returns the delays before another watch, which grow from 1–5 s to 8–40 s. They are
// random, because the watches of all agents end at the same time when the API server stops.
func watchBackoff() wait.Backoff {
	return wait.Backoff{
		Duration: time.Second, Factor: 2, Jitter: 4, Steps: 4, Cap: 8 * time.Second,
	}
}

// WatchDaemonSet calls onUpdate with the metadata of the DaemonSet, or nil if there is none: at the
// beginning of each watch and after each change, until ctx is done. It does not request the rest of
// the DaemonSet: during an update its status changes for each node, and each change is sent to each
// agent. WatchDaemonSet calls onError, unless nil, with each error, and retries with increasing
// random delays.
func (c *Client) WatchDaemonSet(
	ctx context.Context, n Name, onUpdate func(*DaemonSet), onError func(error),
) {
	backoff := watchBackoff()
	for ctx.Err() == nil {
		resourceVersion, err := c.listDaemonSet(ctx, n, onUpdate)
		if err == nil {
			began := time.Now()
			err = c.followDaemonSet(ctx, n, resourceVersion, onUpdate)
			if time.Since(began) >= minWatchTime {
				backoff = watchBackoff() // the API server supports the watch
			}
		}
		if err != nil && ctx.Err() == nil && onError != nil {
			onError(fmt.Errorf("watch DaemonSet %s: %w", n, err))
		}
		// Wait without an error too: the API server may end a watch right after its beginning.
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// listDaemonSet calls onUpdate with the current DaemonSet, and returns the resourceVersion from
// which to watch.
func (c *Client) listDaemonSet(
	ctx context.Context, n Name, onUpdate func(*DaemonSet),
) (resourceVersion string, err error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	list, err := c.listMetadata(ctx, daemonSetsPath(n.Namespace), selectName(n))
	if err != nil {
		return "", err
	}
	var current *DaemonSet
	for _, item := range list.Items {
		if item.Name == n.Name {
			current = &DaemonSet{ObjectMeta: item.ObjectMeta}
		}
	}
	onUpdate(current)
	return list.ResourceVersion, nil
}

// followDaemonSet calls onUpdate with each changed state until the watch ends.
func (c *Client) followDaemonSet(
	ctx context.Context, n Name, resourceVersion string, onUpdate func(*DaemonSet),
) error {
	duration := minWatchTime + rand.N(maxWatchTime-minWatchTime)
	ctx, cancel := context.WithTimeout(ctx, duration+replyTimeout)
	defer cancel()
	query := selectName(n)
	query.Set("watch", "true")
	query.Set("resourceVersion", resourceVersion)
	query.Set("timeoutSeconds", strconv.Itoa(int(duration/time.Second)))
	response, err := c.requestMetadata(ctx, daemonSetsPath(n.Namespace), query)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	events := json.NewDecoder(response.Body)
	for {
		var e metav1.WatchEvent
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := reportChange(&e, n, onUpdate); err != nil {
			return err
		}
	}
}

// reportChange calls onUpdate with the DaemonSet of an event of a watch, or nil if it was deleted.
// Events about other DaemonSets are ignored.
func reportChange(e *metav1.WatchEvent, n Name, onUpdate func(*DaemonSet)) error {
	switch watch.EventType(e.Type) {
	case watch.Added, watch.Modified, watch.Deleted:
	default: // an error, usually because the resourceVersion is too old
		var status metav1.Status
		_ = json.Unmarshal(e.Object.Raw, &status) // the type of the event is reported in any case
		return fmt.Errorf("event %s of the watch: %s", e.Type, status.Message)
	}
	d := new(DaemonSet)
	if err := json.Unmarshal(e.Object.Raw, d); err != nil {
		return err
	}
	if d.Name != n.Name {
		return nil
	}
	if e.Type == string(watch.Deleted) {
		d = nil
	}
	onUpdate(d)
	return nil
}

func selectName(n Name) url.Values {
	return url.Values{"fieldSelector": {"metadata.name=" + n.Name}}
}
