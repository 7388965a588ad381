package serve_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

type enroll = func(context.Context, source.Ref, *netns.NS, []netip.Addr) (agent.Enrollment, error)

func enrollment() agent.Enrollment {
	return agent.Enrollment{Ambient: rules.DefaultAmbient(), Backend: "nft", Outcome: "created"}
}

var webAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.7")}

// TestNetworkNamespaceArrives checks that the network namespace is passed as a descriptor,
// independently of its path in the agent's container.
func TestNetworkNamespaceArrives(t *testing.T) {
	ns := netnstest.New(t)
	env := start(t, socket(t), serve.Options{Objects: echo, Enroll: func(
		_ context.Context, ref source.Ref, got *netns.NS, addresses []netip.Addr,
	) (agent.Enrollment, error) {
		if ref != web || got.ID() != ns.ID() || len(addresses) != 1 || addresses[0] != webAddresses[0] {
			t.Errorf("pod %v in the network namespace %v, want %v in %v; addresses %v, want %v", ref, got.ID(), web, ns.ID(),
				addresses, webAddresses)
		}
		return enrollment(), nil
	}})
	before := netnstest.Descriptors(t)
	for range 5 {
		e, err := env.client().Enroll(t.Context(), web, webAddresses, ns.FD())
		if err != nil || e.Backend != "nft" || !e.Ambient.DNS {
			t.Fatalf("enrollment %+v, error %v, want backend nft with DNS", e, err)
		}
	}
	// A request without a descriptor succeeds too.
	if _, err := env.client().Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
	env.stop()
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d open descriptors, want at most %d as before", after, before)
	}
}

func TestRefusedEnrollmentsReturnTheReason(t *testing.T) {
	ns := netnstest.New(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	refusing := func(kind source.Kind) enroll {
		return func(context.Context, source.Ref, *netns.NS, []netip.Addr) (agent.Enrollment, error) {
			return agent.Enrollment{}, source.WithKind(kind, errors.New("because"))
		}
	}
	for _, test := range []struct {
		name   string
		enroll enroll
		fd     int
		kind   source.Kind
		text   string
	}{
		{"ambient mode is off", nil, ns.FD(), source.Misconfigured, "ambient mode is disabled"},
		{"the descriptor is not a namespace", refusing(""), int(file.Fd()), source.Unavailable, "not a namespace"},
		{"ztunnel refuses the pod", refusing(agent.KindZtunnel), ns.FD(), agent.KindZtunnel, "because"},
		{"an annotation is invalid", refusing(agent.KindParameters), ns.FD(), agent.KindParameters, "because"},
		{"the pod does not exist", refusing(source.NotFound), ns.FD(), source.NotFound, "because"},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := start(t, socket(t), serve.Options{Objects: echo, Enroll: test.enroll})
			_, err := env.client().Enroll(t.Context(), web, webAddresses, test.fd)
			if source.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error of kind %q: %v, want %q: %s", source.KindOf(err), err, test.kind, test.text)
			}
		})
	}
	t.Run("the request has no descriptor", func(t *testing.T) {
		env := start(t, socket(t), serve.Options{Objects: echo, Enroll: refusing("")})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := agent.Caller{Socket: env.path}.Query(ctx, agent.Request{Verb: agent.AskEnroll})
		if err == nil || !strings.Contains(err.Error(), "0 descriptors") {
			t.Errorf("error %v, want that the request has 0 descriptors", err)
		}
	})
	t.Run("no agent listens", func(t *testing.T) {
		_, err := client.New(client.Options{Socket: socket(t)}).Enroll(t.Context(), web, webAddresses, ns.FD())
		if source.KindOf(err) != source.Unavailable || !strings.Contains(err.Error(), "no agent listens") {
			t.Errorf("error of kind %q: %v, want unavailable, because no agent listens",
				source.KindOf(err), err)
		}
	})
}

// TestWaitingEnrollmentsDelayNoOtherRequest checks that enrollments that wait for ztunnel do not
// delay other requests, and end with the server.
func TestWaitingEnrollmentsDelayNoOtherRequest(t *testing.T) {
	ns := netnstest.New(t)
	const waiting = 200 // more than the limit of other connections
	began := make(chan struct{}, waiting)
	env := start(t, socket(t), serve.Options{Objects: echo, Enroll: func(
		ctx context.Context, _ source.Ref, _ *netns.NS, _ []netip.Addr,
	) (agent.Enrollment, error) {
		began <- struct{}{}
		<-ctx.Done()
		return agent.Enrollment{}, source.WithKind(agent.KindZtunnel, errors.New("the agent exits"))
	}})
	ended := make(chan error, waiting)
	for range waiting {
		go func() {
			_, err := env.client().Enroll(context.Background(), web, webAddresses, ns.FD())
			ended <- err
		}()
	}
	for range waiting {
		select {
		case <-began:
		case err := <-ended:
			t.Fatalf("an enrollment ended while the agent was running: %v", err)
		}
	}
	if _, err := env.client().Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
	env.stop()
	for range waiting {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "the agent exits") {
			t.Errorf("error %v, want that the agent exits", err)
		}
	}
}
