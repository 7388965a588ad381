package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// The API server ends a watch after a random time between minWatchTime and maxWatchTime, which are
// client-go's, so that a dead connection is replaced and the agents of a cluster do not watch again
// at the same time. The client ends a watch after answerTime more.
const (
	minWatchTime = 5 * time.Minute
	maxWatchTime = 10 * time.Minute
	answerTime   = 30 * time.Second
)

// watchPause returns the delays before watching again: 1 to 5 s at first, and 8 to 40 s at last.
// They are random, because the watches of all agents end at the same time when the API server
// stops.
func watchPause() wait.Backoff {
	return wait.Backoff{
		Duration: time.Second, Factor: 2, Jitter: 4, Steps: 4, Cap: 8 * time.Second,
	}
}

// WatchDaemonSet calls seen with the metadata of the DaemonSet, or nil if there is none, and again
// after each change, until ctx is done. The rest of the DaemonSet is not requested, because during
// an update its status changes for each node, and each change is sent to each node. WatchDaemonSet
// calls broken, unless nil, with each error, and retries with increasing random delays.
func (c *Client) WatchDaemonSet(
	ctx context.Context, n Name, seen func(*DaemonSet), broken func(error),
) {
	pause := watchPause()
	for ctx.Err() == nil {
		version, err := c.listDaemonSet(ctx, n, seen)
		if err == nil {
			pause = watchPause()
			err = c.followDaemonSet(ctx, n, version, seen)
		}
		if err != nil && ctx.Err() == nil && broken != nil {
			broken(fmt.Errorf("watch DaemonSet %s: %w", n, err))
		}
		// Wait without an error too: the API server ends watches from time to time, and may end a
		// broken one immediately.
		timer := time.NewTimer(pause.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// listDaemonSet reports the current DaemonSet, and returns the version from which to watch.
func (c *Client) listDaemonSet(
	ctx context.Context, n Name, seen func(*DaemonSet),
) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var list struct {
		Meta  Meta        `json:"metadata"`
		Items []DaemonSet `json:"items"`
	}
	response, err := c.metadata(ctx, daemonSets(n.Namespace), only(n))
	if err != nil {
		return "", err
	}
	if err := decode(response, http.MethodGet, daemonSets(n.Namespace), &list); err != nil {
		return "", err
	}
	var there *DaemonSet
	for i := range list.Items {
		if list.Items[i].Meta.Name == n.Name {
			there = &list.Items[i]
		}
	}
	seen(there)
	return list.Meta.ResourceVersion, nil
}

// followDaemonSet reports changes until the watch ends.
func (c *Client) followDaemonSet(
	ctx context.Context, n Name, version string, seen func(*DaemonSet),
) error {
	duration := minWatchTime + rand.N(maxWatchTime-minWatchTime)
	ctx, cancel := context.WithTimeout(ctx, duration+answerTime)
	defer cancel()
	query := only(n)
	query.Set("watch", "true")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", strconv.Itoa(int(duration/time.Second)))
	response, err := c.metadata(ctx, daemonSets(n.Namespace), query)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	events := json.NewDecoder(response.Body)
	for {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := take(e.Type, e.Object, n, seen); err != nil {
			return err
		}
	}
}

// take reports one event of a watch.
func take(eventType string, object json.RawMessage, n Name, seen func(*DaemonSet)) error {
	switch eventType {
	case "ADDED", "MODIFIED", "DELETED":
	default:
		// an error, in most cases that the version is too old
		return fmt.Errorf("the watch ends with %s", eventType)
	}
	d := new(DaemonSet)
	if err := json.Unmarshal(object, d); err != nil {
		return err
	}
	if d.Meta.Name != n.Name {
		return nil
	}
	if eventType == "DELETED" {
		d = nil
	}
	seen(d)
	return nil
}

// metadata sends a request for metadata, and returns the reply if it is a success.
func (c *Client) metadata(
	ctx context.Context, path string, query url.Values,
) (*http.Response, error) {
	response, err := c.api.Metadata(ctx, path, query)
	if err != nil {
		return nil, err
	}
	return success(response, http.MethodGet, path)
}

func only(n Name) url.Values { return url.Values{"fieldSelector": {"metadata.name=" + n.Name}} }
