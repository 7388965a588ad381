package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// watchTime is the time after which the API server ends a watch, so that a dead connection is
	// replaced. The client ends a watch after longestPause more.
	watchTime    = 290 * time.Second
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
)

// WatchDaemonSet calls seen with the DaemonSet, or nil if there is none, and again after each
// change, until ctx is done. It calls broken, unless nil, with each error, and retries with
// increasing delays.
func (c *Client) WatchDaemonSet(
	ctx context.Context, n Name, seen func(*DaemonSet), broken func(error),
) {
	pause := firstPause
	for ctx.Err() == nil {
		version, err := c.listDaemonSet(ctx, n, seen)
		if err == nil {
			pause = firstPause
			err = c.followDaemonSet(ctx, n, version, seen)
		}
		if err != nil && ctx.Err() == nil && broken != nil {
			broken(fmt.Errorf("watch DaemonSet %s: %w", n, err))
		}
		// Wait without an error too: the API server ends watches from time to time, and may end a
		// broken one immediately.
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		if err != nil {
			pause = min(2*pause, longestPause)
		}
	}
}

// listDaemonSet reports the current DaemonSet, and returns the version from which to watch.
func (c *Client) listDaemonSet(
	ctx context.Context, n Name, seen func(*DaemonSet),
) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestPause)
	defer cancel()
	var list struct {
		Meta  Meta        `json:"metadata"`
		Items []DaemonSet `json:"items"`
	}
	if err := c.do(ctx, http.MethodGet, daemonSets(n.Namespace), only(n), nil, &list); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, watchTime+longestPause)
	defer cancel()
	query := only(n)
	query.Set("watch", "true")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", strconv.Itoa(int(watchTime/time.Second)))
	response, err := c.send(ctx, http.MethodGet, daemonSets(n.Namespace), query, nil)
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
func take(what string, object json.RawMessage, n Name, seen func(*DaemonSet)) error {
	switch what {
	case "ADDED", "MODIFIED", "DELETED":
	default:
		// an error, in most cases that the version is too old
		return fmt.Errorf("the watch ends with %s", what)
	}
	d := new(DaemonSet)
	if err := json.Unmarshal(object, d); err != nil {
		return err
	}
	if d.Meta.Name != n.Name {
		return nil
	}
	if what == "DELETED" {
		d = nil
	}
	seen(d)
	return nil
}

func only(n Name) url.Values { return url.Values{"fieldSelector": {"metadata.name=" + n.Name}} }
