package ztunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-mesh/sluice/install/notify"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
)

// A connection is a connected ztunnel that has sent its hello. The mutex of the server guards the
// fields in the second group.
type connection struct {
	server  *Server
	conn    *net.UnixConn
	id      uint64
	pid     int32 // 0 if the process is not visible
	version zds.Version
	since   time.Time
	log     *zap.Logger
	// wake wakes write if the queue has grown or a message has been acknowledged.
	wake notify.Channel

	synced         bool              // the snapshot has been acknowledged
	queue          []string          // UIDs of the pods whose state must be sent
	unacknowledged *request          // last message, until it is acknowledged
	results        map[string]result // by UID
	lastErr        string
}

// A result is the last acknowledgement for a pod.
type result struct {
	pod  *servedPod // nil for a delete
	err  string     // of ztunnel
	keep bool       // the acknowledged message was a keep
}

// A reply is ztunnel's reply to the message about a pod.
type reply int

const (
	noReply reply = iota // the pod was not sent, or has not been acknowledged
	acknowledged
	kept // a keep was acknowledged: ztunnel serves the pod only if it did so before
	refused
)

// reply returns the reply about the pod. It returns noReply if the last acknowledgement is for an
// earlier state of the pod.
func (c *connection) reply(served *servedPod) reply {
	r := c.results[served.UID]
	switch {
	case r.pod != served:
		return noReply
	case r.err != "":
		return refused
	case r.keep:
		return kept
	}
	return acknowledged
}

// serveConnection serves one connection until the connection or the context ends. It returns an
// error only if the hello is missing or invalid; disconnect logs later errors.
func (s *Server) serveConnection(ctx context.Context, conn *net.UnixConn, pid int32) error {
	s.addAccepted(1)
	defer s.addAccepted(-1)
	select {
	case <-s.restored:
	case <-ctx.Done():
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	version, err := readHello(conn)
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		// An agent of an earlier version connects to test whether the socket is served.
		return nil
	}
	if err != nil {
		return fmt.Errorf("ztunnel pid %d: read the hello: %w", pid, err)
	}
	c := s.connect(conn, pid, version)
	readErr := make(chan error, 1)
	go func() {
		err := c.read()
		cancel()
		readErr <- err
	}()
	err = c.write(ctx)
	cancel()
	_ = conn.Close()
	err = errors.Join(err, <-readErr)
	s.disconnect(c, err)
	return nil
}

// addAccepted adds n to the number of accepted connections, and reports the number.
func (s *Server) addAccepted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted += n
	s.connected(s.accepted)
}

// connect registers a connection, whose queue contains all pods of the state.
func (s *Server) connect(conn *net.UnixConn, pid int32, version zds.Version) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	c := &connection{
		server: s, conn: conn, id: s.lastID, pid: pid, version: version, since: time.Now(),
		log:     s.log.With(zap.Uint64("connection", s.lastID), zap.Int32("pid", pid)),
		wake:    notify.New(),
		results: map[string]result{},
	}
	c.queue = slices.Sorted(maps.Keys(s.pods))
	s.connections[c] = struct{}{}
	s.notify("")
	c.log.Info("ztunnel connected", zap.Stringer("version", version),
		zap.Int("pods", len(s.pods)))
	return c
}

// disconnect removes a connection, wakes all waiters, and logs the end of the connection with the
// message that was not acknowledged.
func (s *Server) disconnect(c *connection, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.notify("")
	fields := []zap.Field{zap.Duration("after", time.Since(c.since))}
	if c.unacknowledged != nil {
		fields = append(fields, zap.String("not_acknowledged", c.unacknowledged.text))
	}
	if err != nil {
		c.log.Warn("connection to ztunnel closed", append(fields, zap.Error(err))...)
		return
	}
	c.log.Info("ztunnel disconnected", fields...)
}

// enqueue adds a pod to the queue, so that its current state is sent.
func (c *connection) enqueue(uid string) {
	if !slices.Contains(c.queue, uid) {
		c.queue = append(c.queue, uid)
	}
	c.wake.Notify()
}

// isPending reports whether the state of a pod must be sent, or was sent and is not acknowledged.
func (c *connection) isPending(uid string) bool {
	return c.unacknowledged != nil && c.unacknowledged.uid == uid || slices.Contains(c.queue, uid)
}

// next takes the next message from the queue, and marks it as sent. It returns nil if there is
// none, or if the last message is not acknowledged.
func (c *connection) next() *request {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.unacknowledged != nil {
		return nil
	}
	c.unacknowledged = c.takeRequest()
	if c.unacknowledged != nil {
		c.unacknowledged.since = time.Now()
		if c.unacknowledged.isAdd() {
			c.unacknowledged.pod.users++
		}
	}
	return c.unacknowledged
}

// takeRequest returns the message for the first pod in the queue, and removes the pod from the
// queue. Before the snapshot is acknowledged, it skips deletes, and returns the end of the snapshot
// when only deletes remain.
func (c *connection) takeRequest() *request {
	for i, uid := range c.queue {
		served := c.server.pods[uid]
		if served == nil && !c.synced {
			continue
		}
		c.queue = slices.Delete(c.queue, i, i+1)
		switch {
		case served == nil:
			return deleteRequest(uid)
		case served.Netns != nil:
			return addRequest(served)
		case !c.synced:
			return keepRequest(served)
		}
		return c.takeRequest() // after the snapshot, a pod without a network namespace is not sent
	}
	if !c.synced {
		return snapshotRequest()
	}
	return nil
}

// write sends messages until the context ends or sending fails. It sends a message after the
// previous message was acknowledged.
func (c *connection) write(ctx context.Context) error {
	for {
		r := c.next()
		if r == nil {
			select {
			case <-c.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		if err := c.send(r); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", r.text, err)
		}
	}
}

// send sends a message. If it is an add, the packet contains the descriptor of the pod's network
// namespace.
func (c *connection) send(r *request) error {
	var rights []byte // ancillary data with a descriptor (SCM_RIGHTS)
	if r.isAdd() {
		rights = unix.UnixRights(r.pod.Netns.FD())
		defer func() {
			c.server.mu.Lock()
			defer c.server.mu.Unlock()
			r.pod.users--
			r.pod.closeUnused()
		}()
	}
	data, err := proto.Marshal(r.message)
	if err != nil {
		return err
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _, err = c.conn.WriteMsgUnix(data, rights, nil)
	return err
}

// read receives acknowledgements until the connection ends. It returns nil if ztunnel or the server
// has closed the connection.
func (c *connection) read() error {
	buffer := make([]byte, maxMessage)
	for {
		data, err := readPacket(c.conn, buffer)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
			errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := decodeAck(data)
		if err != nil {
			return err
		}
		if err := c.acknowledge(text); err != nil {
			return err
		}
	}
}

// acknowledge records the acknowledgement of the message that was sent last. text is the error of
// ztunnel, or empty.
func (c *connection) acknowledge(text string) error {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	r := c.unacknowledged
	if r == nil {
		return errors.New("ztunnel acknowledged a message that was not sent")
	}
	c.unacknowledged = nil
	elapsed := time.Since(r.since)
	if elapsed > lateAfter {
		c.log.Warn("ztunnel acknowledged a message late", zap.String("message", r.text),
			zap.Duration("took", elapsed))
	}
	if text != "" {
		c.lastErr = r.text + ": " + text
		c.log.Warn("ztunnel refused a message", zap.String("message", r.text), zap.String("error", text))
	}
	switch {
	case r.uid == "":
		c.synced = true
		c.log.Info("ztunnel acknowledged the snapshot",
			zap.Duration("took", time.Since(c.since)))
	case r.pod == nil && text == "":
		delete(c.results, r.uid)
	default:
		c.results[r.uid] = result{pod: r.pod, err: text, keep: r.keep}
	}
	c.wake.Notify()
	s.notify(r.uid)
	return nil
}

// describePending describes the message that is not acknowledged, if any, and the length of the
// queue.
func (c *connection) describePending() string {
	text := fmt.Sprintf("ztunnel pid %d, connected for %s,", c.pid, round(time.Since(c.since)))
	if c.unacknowledged == nil {
		return text + " has acknowledged all messages that were sent"
	}
	text += fmt.Sprintf(" has not acknowledged %q for %s", c.unacknowledged.text,
		round(time.Since(c.unacknowledged.since)))
	if n := len(c.queue); n > 0 {
		text += fmt.Sprintf(", with %d more in the queue", n)
	}
	return text
}
