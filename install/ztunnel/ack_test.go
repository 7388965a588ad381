package ztunnel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestLateAcknowledgementIsValid(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	c := env.dial(t)
	expectAndAck(t, c, "snapshot")
	env.waitConnected(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error)
	p := pod(t, "a")
	go func() { results <- env.Add(ctx, p) }()
	expectUnacknowledged(t, c, "add uid-a")
	cancel()
	err := <-results
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "pod default/a: waited ") ||
		!strings.Contains(err.Error(), `has not acknowledged "add default/a" for `) {
		t.Errorf("error %v, want Canceled with the message that is not acknowledged", err)
	}
	if got := env.State().Connections[0]; got.Unacknowledged != "add default/a" ||
		got.SentAt.IsZero() {
		t.Errorf("connection %+v, want an unacknowledged message and the time when it was sent", got)
	}
	// A second call waits for the same message, and other messages wait behind it.
	go func() { results <- env.Add(t.Context(), p) }()
	ctx, cancel = context.WithCancel(t.Context())
	go func() { results <- env.Add(ctx, pod(t, "b")) }()
	rulestest.Eventually(t, "b waits", func() bool { return env.State().Connections[0].Queued == 1 })
	cancel()
	if err := <-results; !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "with 1 more in the queue") {
		t.Errorf("error %v, want Canceled with the number of waiting messages", err)
	}
	if err := c.Ack(""); err != nil {
		t.Fatal(err)
	}
	if err := <-results; err != nil {
		t.Error(err)
	}
	expectAndAck(t, c, "add uid-b")
	rulestest.Eventually(t, "b is acknowledged", func() bool { return env.State().Pods[1].AckedBy == 1 })
	if env.logs.FilterMessage("connection to ztunnel closed").Len() > 0 {
		t.Error("the connection was closed")
	}
}

// TestSilentZtunnelDoesNotBlockAdds covers a ztunnel that acknowledges nothing, and that connects
// before or after another ztunnel.
func TestSilentZtunnelDoesNotBlockAdds(t *testing.T) {
	for _, name := range []string{"the silent ztunnel is the newest", "the silent ztunnel is the oldest"} {
		t.Run(name, func(t *testing.T) {
			env := start(t, socket(t))
			env.Restore([]ztunnel.Pod{pod(t, "first")})
			connect := []func(){
				func() { ztunneltest.Start(t, env.path, nil).Wait(t, "snapshot") },
				func() { env.dial(t) }, // receives the snapshot, and does not acknowledge it
			}
			if name == "the silent ztunnel is the oldest" {
				slices.Reverse(connect)
			}
			for i, f := range connect {
				f()
				rulestest.Eventually(t, "the ztunnel is connected", func() bool {
					return len(env.State().Connections) == i+1
				})
			}
			env.waitConnected(t, 2, 1)
			p := pod(t, "a")
			if err := env.Add(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if got := env.State().Pods[0]; got.AckedBy != 1 {
				t.Errorf("state %+v, want only the acknowledgement of the other ztunnel", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := env.Remove(ctx, p.UID); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), `has not acknowledged "add default/first"`) {
				t.Errorf("Remove: error %v, want DeadlineExceeded with the silent ztunnel's message", err)
			}
		})
	}
}

func TestEachZtunnelReceivesAddsAndDeletes(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	var all []*ztunneltest.Ztunnel
	for range 3 {
		z := ztunneltest.Start(t, env.path, nil)
		z.Wait(t, "snapshot")
		all = append(all, z)
	}
	env.waitConnected(t, 3, 3)
	p := pod(t, "a")
	if err := env.Add(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, z := range all {
		z.Wait(t, "add uid-a")
	}
	rulestest.Eventually(t, "all ztunnels have the pod", func() bool { return env.State().Pods[0].AckedBy == 3 })
	if err := env.Remove(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	for _, z := range all {
		if got := z.Messages(); !slices.Equal(got, []string{"snapshot", "add uid-a", "del uid-a"}) {
			t.Errorf("messages %q, want snapshot, add uid-a and del uid-a", got)
		}
	}
	// The other ztunnels still receive pods after one has ended.
	all[2].Stop()
	env.waitConnected(t, 2, 2)
	if err := env.Add(t.Context(), pod(t, "b")); err != nil {
		t.Error(err)
	}
}

func TestAddFailsOnceAllZtunnelsHaveEnded(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	c, other := env.dial(t), env.dial(t)
	expectAndAck(t, c, "snapshot")
	expectAndAck(t, other, "snapshot")
	env.waitConnected(t, 2, 2)
	results := make(chan error)
	p := pod(t, "a")
	go func() { results <- env.Add(t.Context(), p) }()
	expectUnacknowledged(t, c, "add uid-a")
	expectUnacknowledged(t, other, "add uid-a")
	c.Close()
	env.waitConnected(t, 1, 1)
	select {
	case err := <-results:
		t.Fatalf("Add returned while another ztunnel was connected: error %v", err)
	default:
	}
	other.Close()
	if err := <-results; !errors.Is(err, ztunnel.ErrNotConnected) {
		t.Errorf("after both ztunnels have ended: error %v, want ErrNotConnected", err)
	}
	if entry := env.waitLog(t, "ztunnel disconnected"); entry.ContextMap()["not_acknowledged"] !=
		"add default/a" {
		t.Errorf("log fields %v, want not_acknowledged: add default/a", entry.ContextMap())
	}
	// The ztunnel connects again, and receives the pod in its snapshot.
	second := env.dial(t)
	expectAndAck(t, second, "add uid-a")
	expectAndAck(t, second, "snapshot")
	env.waitConnected(t, 1, 1)
	if err := env.Add(t.Context(), p); err != nil { // nothing more is sent
		t.Error(err)
	}
}

func TestRemoveDoesNotWaitForZtunnelThatEnds(t *testing.T) {
	env := start(t, socket(t))
	env.Restore([]ztunnel.Pod{pod(t, "a")})
	c := env.dial(t)
	expectUnacknowledged(t, c, "add uid-a")
	results := make(chan error)
	go func() { results <- env.Remove(t.Context(), "uid-a") }()
	rulestest.Eventually(t, "the pod is removed", func() bool { return len(env.State().Pods) == 0 })
	// The delete follows the snapshot.
	if err := c.Ack(""); err != nil {
		t.Fatal(err)
	}
	expectAndAck(t, c, "snapshot")
	expectUnacknowledged(t, c, "del uid-a")
	c.Close()
	if err := <-results; err != nil {
		t.Error(err)
	}
}

func TestAddDuringSnapshotIsPartOfIt(t *testing.T) {
	env := start(t, socket(t))
	env.Restore([]ztunnel.Pod{pod(t, "a"), pod(t, "b")})
	c := env.dial(t)
	expectUnacknowledged(t, c, "add uid-a")
	results := make(chan error)
	go func() { results <- env.Add(t.Context(), pod(t, "c")) }()
	rulestest.Eventually(t, "the message is queued", func() bool { return env.State().Connections[0].Queued == 2 })
	if err := c.Ack("not now"); err != nil { // this does not end the snapshot
		t.Fatal(err)
	}
	expectAndAck(t, c, "add uid-b")
	expectAndAck(t, c, "add uid-c")
	expectAndAck(t, c, "snapshot")
	if err := <-results; err != nil {
		t.Error(err)
	}
	if got := env.State().Connections[0]; got.LastError != "add default/a: not now" {
		t.Errorf("connection %+v, want the error of ztunnel", got)
	}
}

func TestOtherProtocolVersionsAreAccepted(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	for i, version := range []zds.Version{zds.Version_V1, 7} {
		c, err := ztunneltest.Dial(env.path, version)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		expectAndAck(t, c, "snapshot")
		env.waitConnected(t, i+1, i+1)
		if got, want := env.State().Connections[i].Version, []string{"V1", "7"}[i]; got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
}

// TestInvalidMessagesCloseTheConnection checks that a message that violates the protocol closes the
// connection, and that the log contains the reason.
func TestInvalidMessagesCloseTheConnection(t *testing.T) {
	ack, err := proto.Marshal(&zds.Response{Payload: &zds.Response_Ack{Ack: &zds.Ack{}}})
	if err != nil {
		t.Fatal(err)
	}
	for want, packet := range map[string][]byte{
		"acknowledged a message that was not sent": ack,
		"not an acknowledgement":                   {0x10, 1},
		"decode an acknowledgement: proto":         {0xff},
		"a message has more than 65536 bytes":      make([]byte, 65537),
	} {
		env := start(t, socket(t))
		env.Restore(nil)
		c := env.dial(t)
		expectAndAck(t, c, "snapshot")
		env.waitConnected(t, 1, 1)
		if err := c.Write(packet); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Next(); err == nil {
			t.Errorf("the connection is open after the message for %q", want)
		}
		entry := env.waitLog(t, "connection to ztunnel closed")
		// Package proto varies the white space of its messages.
		if text, _ := entry.ContextMap()["error"].(string); !strings.Contains(text, want) {
			t.Errorf("error %q, want %q", text, want)
		}
	}
}

func TestInvalidHelloClosesTheConnection(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	c, err := ztunneltest.Connect(env.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Write([]byte{0xff}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Next(); err == nil {
		t.Error("the connection is open after an invalid hello")
	}
	entry := env.waitLog(t, "error on the socket of ztunnel")
	if text, _ := entry.ContextMap()["error"].(string); !strings.Contains(text, ": read the hello: ") {
		t.Errorf("error %q, want one about the hello", text)
	}
}

func TestHelloIsLimitedInTime(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	c, err := ztunneltest.Connect(env.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Next(); err == nil { // blocks until the server closes the connection
		t.Error("a message was sent before the hello")
	}
	env.waitLog(t, "error on the socket of ztunnel")
}

func TestConnectionsAreLimited(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	const limit = 16
	var first *ztunneltest.Client
	for i := range limit {
		c := env.dial(t)
		expectAndAck(t, c, "snapshot")
		if i == 0 {
			first = c
		}
	}
	env.waitConnected(t, limit, limit)
	waiting := env.dial(t)
	first.Close()
	expectAndAck(t, waiting, "snapshot")
	env.waitConnected(t, limit, limit)
}
