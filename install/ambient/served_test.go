package ambient_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestZtunnelOfAnotherAgentServesThePod covers a ztunnel that is connected to istio-cni and already
// listens in the pod: ADD succeeds. When a ztunnel connects to this agent later, the agent sends it
// the pod.
func TestZtunnelOfAnotherAgentServesThePod(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web", running("10.0.0.7"))
	env.addSandbox("web", ns)
	env.start()
	rulestest.Eventually(t, "without ztunnel the pod is pending", func() bool {
		return env.annotation("web") == "pending"
	})
	listenAsZtunnel(t, ns)
	if _, err := env.add("web", ns); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the value of the annotation is enabled", func() bool { return env.annotation("web") == "enabled" })
	ztunneltest.Start(t, env.socket, nil).Wait(t, "add uid-web")
}

// TestPodEnrolledByAnotherAgentStaysEnrolled checks that a pod that istio-cni has enrolled stays
// enrolled while ztunnel switches from istio-cni to this agent.
func TestPodEnrolledByAnotherAgentStaysEnrolled(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	listenAsZtunnel(t, ns)
	env.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	env.addSandbox("web", ns)
	env.start()
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	ztunneltest.Start(t, env.socket, nil).Wait(t, "snapshot")
	if got := env.patched(); got != "" {
		t.Errorf("patches %s, want none", got)
	}
}

// TestRefusalOfARestartedZtunnel checks that a pod is pending after a restarted ztunnel has refused
// it, and that the next reconciliation sends the pod again.
func TestRefusalOfARestartedZtunnel(t *testing.T) {
	env := newTestEnv(t)
	ns := env.addSandbox("web", netnstest.New(t))
	env.put("web", running("10.0.0.7"))
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	if _, err := env.add("web", ns); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the annotation is enabled", func() bool { return env.annotation("web") == "enabled" })
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.Count()[ambient.Enrolled] == 1 })
	z.Stop()
	var accepts atomic.Bool
	z = ztunneltest.Start(t, env.socket, func(r *zds.Request) string {
		if r.GetAdd() == nil || accepts.Load() {
			return ""
		}
		return "no certificate"
	})
	rulestest.Eventually(t, "the pod is pending with the refusal", func() bool {
		pending := env.Pending()
		return len(pending) == 1 && errors.Is(pending[0].Err, ztunnel.ErrRefused) && env.Count()[ambient.Enrolled] == 0
	})
	env.Changed("shop", "web")
	rulestest.Eventually(t, "the annotation is pending", func() bool { return env.annotation("web") == "pending" })
	rulestest.Eventually(t, "an event contains the refusal", func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return len(env.events) == 1 && strings.Contains(env.events[0].Message, "no certificate")
	})
	accepts.Store(true)
	rulestest.Eventually(t, "the pod is enrolled again", func() bool {
		return env.Count()[ambient.Enrolled] == 1 && env.annotation("web") == "enabled"
	})
	if z.Pods()["uid-web"] != ns.ID() {
		t.Error("ztunnel has not received the pod again")
	}
}

// listenAsZtunnel opens the listeners of a ztunnel.
func listenAsZtunnel(t *testing.T, ns *netns.NS) {
	t.Helper()
	for _, port := range []string{":15001", ":15006", ":15008"} {
		if err := ns.Do(func() error {
			l, err := net.Listen("tcp", port)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
