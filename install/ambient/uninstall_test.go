package ambient_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestPodsLeaveIfUninstalledBeforeTheFirstReconciliation covers an agent that is stopped right
// after its start. The pods that an earlier agent has enrolled leave ambient mode.
func TestPodsLeaveIfUninstalledBeforeTheFirstReconciliation(t *testing.T) {
	env := newTestEnv(t)
	ns, unlabeled := netnstest.New(t), netnstest.New(t)
	apply(t, compat.BackendNFT, ns, ambientRules(t))
	apply(t, compat.BackendNFT, unlabeled, ambientRules(t))
	env.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	env.addSandbox("web", ns)
	env.put("unlabeled", running("10.0.0.8"), removeLabels)
	env.addSandbox("unlabeled", unlabeled)
	env.put("lost", running("10.0.0.9"), annotated(redirection, "enabled"))
	env.synced = false
	env.start()
	env.endRun()
	env.synced = true
	err := env.Uninstall(t.Context())
	if err == nil || !strings.Contains(err.Error(), "shop/lost") || strings.Contains(err.Error(), "shop/web") {
		t.Errorf("error %v, want one that names only the pod whose network namespace is not found", err)
	}
	if !hasNoRules(t, ns) || env.annotation("web") != "" {
		t.Error("the enrolled pod is still in ambient mode")
	}
	if !hasNoRules(t, unlabeled) {
		t.Error("the pod without the ambient label still has rules")
	}
}

func TestUninstallFailsBeforePodsAreListed(t *testing.T) {
	env := newTestEnv(t)
	env.synced = false
	env.start()
	env.endRun()
	if err := env.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "the node's pods have not been listed") {
		t.Errorf("error %v, want one: rules may remain in pods that are not known", err)
	}
}

// TestAddFailsAfterUninstall covers an ADD of a plugin that was started before the uninstallation:
// the pod would have rules without an agent.
func TestAddFailsAfterUninstall(t *testing.T) {
	env, _, z := startEnrolled(t, nil)
	env.endRun()
	if err := env.Uninstall(t.Context()); err != nil {
		t.Error(err)
	}
	env.put("db")
	if _, err := env.add("db", netnstest.New(t)); source.KindOf(err) != source.Unavailable {
		t.Errorf("ADD returns %v, want an error of the kind %s", err, source.Unavailable)
	}
	if pods := z.Pods(); len(pods) > 0 {
		t.Errorf("ztunnel has %v, want no pods", pods)
	}
	env.Close()
}

// TestUninstallWaitsForAnADD checks that an uninstallation waits for a running ADD, and returns no
// error. The ADD fails, so that the runtime removes its sandbox, which still has rules.
func TestUninstallWaitsForAnADD(t *testing.T) {
	permitReply, addReceived := make(chan struct{}), make(chan struct{}, 1)
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("web")
	env.start()
	ztunneltest.Start(t, env.socket, func(r *zds.Request) string {
		if r.GetAdd() != nil {
			addReceived <- struct{}{}
			<-permitReply
		}
		return ""
	}).Wait(t, "snapshot")
	added := make(chan error, 1)
	go func() {
		_, err := env.add("web", ns)
		added <- err
	}()
	<-addReceived
	env.endRun()
	uninstalled := make(chan error, 1)
	go func() { uninstalled <- env.Uninstall(t.Context()) }()
	waitForLock(t)
	close(permitReply)
	if err := <-added; err == nil || !strings.Contains(err.Error(), "the agent is being uninstalled") {
		t.Errorf("ADD returns the error %v, want one: the agent is being uninstalled", err)
	}
	if err := <-uninstalled; err != nil {
		t.Errorf("Uninstall returns the error %v, want none", err)
	}
}

// TestUninstallTimeIsBoundedIfZtunnelDoesNotReply checks that the time of an uninstallation does
// not grow with the number of pods, because the kubelet kills an agent that takes too long.
func TestUninstallTimeIsBoundedIfZtunnelDoesNotReply(t *testing.T) {
	permitReply := make(chan struct{})
	defer close(permitReply)
	env, _, _ := startEnrolled(t, func(r *zds.Request) string {
		if r.GetDel() != nil {
			<-permitReply
		}
		return ""
	})
	const pods = 63
	for i := range pods {
		name := fmt.Sprintf("pod-%d", i)
		env.addSandbox(name, netnstest.New(t))
		env.put(name, running(fmt.Sprintf("10.0.1.%d", i+1)))
	}
	rulestest.Eventually(t, "the pods are enrolled", func() bool { return env.Count()[ambient.Enrolled] == pods+1 })
	env.endRun()
	start := time.Now()
	err := env.Uninstall(t.Context())
	if took := time.Since(start); took > 14*time.Second {
		// The time would be 16 s if each of the eight workers waited for each of its pods.
		t.Errorf("the uninstallation of %d pods takes %v, want at most 14s", pods+1, took)
	}
	if err == nil {
		t.Error("no error, want one: ztunnel has not acknowledged the removal")
	}
	for i := range pods {
		if name := fmt.Sprintf("pod-%d", i); env.annotation(name) != "" {
			t.Errorf("pod %s still has the annotation", name)
		}
	}
	env.Close()
}
