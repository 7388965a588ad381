package zds_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// closeTime limits the wait until istio-cni, which looks every 5 s, closes a connection.
const closeTime = time.Minute

// What istio-cni does when a ztunnel is slow, and our server does not: a late acknowledgement closes
// the connection, and a connection without a hello receives the pods that are added.
func TestDifferencesWithSlowZtunnels(t *testing.T) {
	program := installer(t)
	kept := pod{name: "kept"}
	p1, p2 := pod{"p1", netnstest.New(t)}, pod{"p2", netnstest.New(t)}
	pods := []pod{p1, p2}
	for name, start := range map[string]func(*testing.T) agent{
		"istio-cni": func(t *testing.T) agent { return startIstio(t, program, kept, pods) },
		"ours":      func(t *testing.T) agent { return startOurs(t, kept) },
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{
				t: t, agent: start(t), pods: map[string]pod{"kept": kept, "p1": p1, "p2": p2},
			}
			w.a = w.ztunnel("A", "")
			silent(t, w, name)
			late(t, w, name)
		})
	}
}

// silent adds a pod while the newest connection has sent no hello.
func silent(t *testing.T, w *world, name string) {
	conn, err := net.Dial("unixpacket", w.agent.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if i, isIstio := w.agent.(istio); isIstio {
		rulestest.EventuallySucceeds(t, "istio-cni has accepted the connection", func() error {
			line, err := i.connected()
			if err == nil && !strings.HasSuffix(line, " 2") {
				err = errors.New(line)
			}
			return err
		})
	}
	err = w.add("p1")
	if (err == nil) != (name == "ours") {
		t.Errorf("ADD beside a silent connection: %v", err)
	}
}

// late acknowledges a pod after ADD has failed.
func late(t *testing.T, w *world, name string) {
	hold := make(chan struct{})
	w.a.hold.Store(&hold)
	if o, isOurs := w.agent.(ours); isOurs {
		ctx, cancel := context.WithCancel(t.Context())
		added := make(chan error)
		go func() { added <- o.addUntil(ctx, w.pods["p2"]) }()
		rulestest.EventuallySucceeds(t, "the pod is sent", func() error {
			if got := o.server.State().Connections[0]; got.AcksOwed != 1 {
				return fmt.Errorf("connection %+v", got)
			}
			return nil
		})
		cancel()
		if err := <-added; !errors.Is(err, context.Canceled) {
			t.Errorf("ADD without an acknowledgement: %v", err)
		}
	} else if err := w.add("p2"); err == nil {
		t.Error("ADD succeeded without an acknowledgement")
	}
	w.a.hold.Store(nil)
	close(hold)
	if name == "istio-cni" {
		select {
		case <-w.a.done: // closed by istio-cni
		case <-time.After(closeTime):
			t.Error("the connection was not closed after a late acknowledgement")
		}
		return
	}
	if err := w.add("p2"); err != nil {
		t.Errorf("ADD after a late acknowledgement: %v", err)
	}
	select {
	case <-w.a.done:
		t.Error("the connection was closed after a late acknowledgement")
	default:
	}
}
