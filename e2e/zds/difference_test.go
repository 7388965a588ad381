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

// closeTimeout is the time in which istio-cni must close a connection. istio-cni checks connections
// every 5 seconds.
const closeTimeout = time.Minute

// istio-cni closes a connection after a late acknowledgement, and sends added pods to a connection
// without a hello. Sluice keeps the connection open after a late acknowledgement, and sends no pods
// before a hello.
func TestDifferencesWithSlowZtunnels(t *testing.T) {
	program := installCNI(t)
	orphan := pod{name: "kept"}
	p1, p2 := pod{"p1", netnstest.New(t)}, pod{"p2", netnstest.New(t)}
	pods := []pod{p1, p2}
	for name, start := range map[string]func(*testing.T) agent{
		"istio-cni": func(t *testing.T) agent { return startIstio(t, program, orphan, pods) },
		"sluice":    func(t *testing.T) agent { return startSluice(t, orphan) },
	} {
		t.Run(name, func(t *testing.T) {
			env := &testEnv{
				t: t, agent: start(t), pods: map[string]pod{"kept": orphan, "p1": p1, "p2": p2},
			}
			env.a = env.ztunnel("A", "")
			testConnectionWithoutHello(t, env, name)
			testLateAcknowledgement(t, env, name)
		})
	}
}

// testConnectionWithoutHello adds a pod while the newest connection has sent no hello.
func testConnectionWithoutHello(t *testing.T, env *testEnv, name string) {
	conn, err := net.Dial("unixpacket", env.agent.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if i, isIstio := env.agent.(istio); isIstio {
		rulestest.EventuallySucceeds(t, "istio-cni has accepted the connection", func() error {
			line, err := i.connected()
			if err == nil && !strings.HasSuffix(line, " 2") {
				err = errors.New(line)
			}
			return err
		})
	}
	err = env.add("p1")
	if (err == nil) != (name == "sluice") {
		t.Errorf("ADD with a connection without a hello: error %v, want an error of istio-cni only", err)
	}
}

// testLateAcknowledgement acknowledges a pod after ADD has failed.
func testLateAcknowledgement(t *testing.T, env *testEnv, name string) {
	hold := make(chan struct{})
	env.a.hold.Store(&hold)
	if s, isSluice := env.agent.(sluice); isSluice {
		ctx, cancel := context.WithCancel(t.Context())
		added := make(chan error)
		go func() { added <- s.addUntil(ctx, env.pods["p2"]) }()
		rulestest.EventuallySucceeds(t, "the pod is sent", func() error {
			if got := s.server.State().Connections[0]; got.Unacknowledged == "" {
				return fmt.Errorf("connection %+v, want an unacknowledged pod", got)
			}
			return nil
		})
		cancel()
		if err := <-added; !errors.Is(err, context.Canceled) {
			t.Errorf("ADD without an acknowledgement: error %v, want %v", err, context.Canceled)
		}
	} else if err := env.add("p2"); err == nil {
		t.Error("ADD without an acknowledgement: no error, want an error")
	}
	env.a.hold.Store(nil)
	close(hold)
	if name == "istio-cni" {
		select {
		case <-env.a.done: // closed by istio-cni
		case <-time.After(closeTimeout):
			t.Error("the connection was not closed after a late acknowledgement")
		}
		return
	}
	if err := env.add("p2"); err != nil {
		t.Errorf("ADD after a late acknowledgement: %v", err)
	}
	select {
	case <-env.a.done:
		t.Error("the connection was closed after a late acknowledgement")
	default:
	}
}
