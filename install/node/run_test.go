package node_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// TestForeignChangesAreNoticedAndCorrected checks that events alone are sufficient.
func TestForeignChangesAreNoticedAndCorrected(t *testing.T) {
	for name, d := range changeCases {
		t.Run(name, func(t *testing.T) {
			b := newTestNode(t)
			_, statuses := b.changed(d)
			d.do(b)
			await(t, statuses, "put right", d.isCorrected(b))
		})
	}
}

var asBefore = map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"}

func owned(s *node.Settings) { s.IstioOwnedCNIConfig = true }

func equal(a, b map[string]string) bool {
	for name := range a {
		if a[name] != b[name] {
			return false
		}
	}
	return len(a) == len(b)
}

// elementIs reports whether each element of Sluice in a list equals the wanted one.
func (b *testNode) elementIs(want string) bool {
	for name := range b.chains() {
		l, err := chain.Parse([]byte(b.read("conf/" + name)))
		if err != nil || strings.HasSuffix(name, "_bak") {
			continue
		}
		if slices.ContainsFunc(l.Elements("sluice-cni"), func(p chain.Plugin) bool {
			return !chain.Equal(p.Raw, []byte(want))
		}) {
			return false
		}
	}
	return true
}

func (b *testNode) executableIs(want string) bool {
	data, err := os.ReadFile(b.path("bin/sluice-cni"))
	info, statErr := os.Stat(b.path("bin/sluice-cni"))
	return err == nil && statErr == nil && string(data) == want && info.Mode().Perm() == 0o755
}

func TestLateNetworkIsServed(t *testing.T) {
	b := newTestNode(t)
	b.settings.Resync = time.Hour
	b.remove("conf")
	statuses := b.running(b.node())
	await(t, statuses, "reported", func(s node.Status) bool {
		return !s.Installed() && len(s.Problems) > 0
	})
	b.put("conf/10-a.conf", plainBridge)
	await(t, statuses, "installed", node.Status.Installed)
	b.wantChains(map[string]string{"10-a.conflist": "bridge sluice-cni"})
}

func TestWithoutEventsTheTimerSuffices(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	filetest.Deny(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE) // as if all instances were used up
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	statuses := b.running(b.node())
	status := await(t, statuses, "installed", node.Status.Installed)
	if got := reasons(status); !slices.Contains(got, node.Polling) {
		t.Errorf("reasons: %v", got)
	}
	b.put("conf/10-a.conflist", list("calico"))
	await(t, statuses, "put right", func(node.Status) bool {
		return equal(b.chains(), map[string]string{"10-a.conflist": "calico sluice-cni"})
	})
}

func TestSettingsChangeWhileRunning(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.settings.Resync = time.Hour
	n := b.node()
	statuses := b.running(n)
	await(t, statuses, "installed", node.Status.Installed)
	for _, step := range []struct {
		set  func(s *node.Settings)
		want map[string]string
	}{
		{
			owned,
			map[string]string{
				"02-istio-cni.conflist": "calico sluice-cni", "10-a.conflist": "calico",
			},
		},
		{func(s *node.Settings) {
			s.Chained = false
		}, map[string]string{"10-a.conflist": "calico", "YYY-sluice-cni.conf": "plain sluice-cni"}},
		{func(*node.Settings) {}, map[string]string{"10-a.conflist": "calico sluice-cni"}},
	} {
		s := b.settings
		step.set(&s)
		b.must(n.Update(s))
		await(t, statuses, "changed over", func(s node.Status) bool {
			return s.Installed() && equal(b.chains(), step.want)
		})
	}
}

func TestUninstallingIsRefusedWhileAnAgentRuns(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	statuses := b.running(b.node())
	await(t, statuses, "installed", node.Status.Installed)
	if _, err := b.node().Uninstall(t.Context(), 0); !errors.Is(err, journal.ErrAgentRunning) {
		t.Errorf("uninstalled while an agent runs: %v", err)
	}
	b.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
}

func TestTwoAgentsDuringARollingUpdate(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	before := b.everything()
	var agents sync.WaitGroup
	for range 4 {
		agents.Go(func() { b.installed(b.node().Reconcile(context.Background())) })
	}
	agents.Wait()
	b.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
	b.uninstall()
	b.restored(before)
}
