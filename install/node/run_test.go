package node_test

import (
	"context"
	"errors"
	"maps"
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

// TestForeignChangesAreNoticedAndCorrected checks that changes are noticed by events alone.
func TestForeignChangesAreNoticedAndCorrected(t *testing.T) {
	for name, c := range changeCases {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			_, statuses := tn.runUntilIdle(c)
			c.do(tn)
			await(t, statuses, "the change is corrected", c.isCorrected(tn))
		})
	}
}

var asBefore = map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"}

// owned makes the agent maintain a copy of the primary configuration. These tests call the copy the
// owned configuration.
func owned(s *node.Settings) { s.IstioOwnedCNIConfig = true }

// elementIs reports whether each element of Sluice in a list equals the wanted one.
func (tn *testNode) elementIs(want string) bool {
	for name := range tn.chains() {
		l, err := chain.Parse([]byte(tn.read("conf/" + name)))
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

func (tn *testNode) executableIs(want string) bool {
	data, err := os.ReadFile(tn.path("bin/sluice-cni"))
	info, statErr := os.Stat(tn.path("bin/sluice-cni"))
	return err == nil && statErr == nil && string(data) == want && info.Mode().Perm() == 0o755
}

func TestPluginIsInsertedWhenANetworkIsInstalled(t *testing.T) {
	tn := newTestNode(t)
	tn.settings.Resync = time.Hour
	tn.remove("conf")
	statuses := tn.runNode(tn.node())
	await(t, statuses, "the missing network is reported", func(s node.Status) bool {
		return !s.Installed() && len(s.Problems) > 0
	})
	tn.put("conf/10-a.conf", plainBridge)
	await(t, statuses, "the plugin is installed", node.Status.Installed)
	tn.wantChains(map[string]string{"10-a.conflist": "bridge sluice-cni"})
}

func TestWithoutEventsTheTimerSuffices(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	filetest.Deny(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE) // as if all inotify instances were in use
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	statuses := tn.runNode(tn.node())
	status := await(t, statuses, "the plugin is installed", node.Status.Installed)
	if got := reasons(status); !slices.Contains(got, node.WatchFailed) {
		t.Errorf("reasons %v, want WatchFailed", got)
	}
	tn.put("conf/10-a.conflist", list("calico"))
	await(t, statuses, "the change is corrected", func(node.Status) bool {
		return maps.Equal(tn.chains(), map[string]string{"10-a.conflist": "calico sluice-cni"})
	})
}

// TestEachReconciliationIsPublishedInOrder checks that the status of a concurrent reconciliation is
// published after the status of the reconciliation before it, with the result of the last watch.
func TestEachReconciliationIsPublishedInOrder(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	filetest.Deny(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE)
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	n := tn.node()
	ctx, cancel := context.WithCancel(t.Context())
	var published []uint64
	var concurrent sync.WaitGroup
	err := n.Run(ctx, func(s node.Status) {
		published = append(published, s.Totals.Reconciliations)
		if got := reasons(s); !slices.Equal(got, []node.Reason{node.WatchFailed}) {
			t.Errorf("reconciliation %d: reasons %v, want WatchFailed", s.Totals.Reconciliations, got)
		}
		if len(published) == 1 {
			concurrent.Go(func() { n.Reconcile(context.Background()) })
		}
		if len(published) == 3 {
			cancel()
		}
	})
	concurrent.Wait()
	for i, number := range published {
		if number != uint64(i)+1 {
			t.Fatalf("published reconciliations %v, want 1, 2, 3 and so on", published)
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run: error %v, want Canceled", err)
	}
}

func TestSettingsThatChangeWhileRunningTakeEffect(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.settings.Resync = time.Hour
	n := tn.node()
	statuses := tn.runNode(n)
	await(t, statuses, "the plugin is installed", node.Status.Installed)
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
		s := tn.settings
		step.set(&s)
		tn.must(n.Update(s))
		await(t, statuses, "the new settings are applied", func(s node.Status) bool {
			return s.Installed() && maps.Equal(tn.chains(), step.want)
		})
	}
}

func TestUninstallingIsRefusedWhileAnAgentRuns(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	statuses := tn.runNode(tn.node())
	await(t, statuses, "the plugin is installed", node.Status.Installed)
	if _, err := tn.node().Uninstall(t.Context(), 0); !errors.Is(err, journal.ErrAgentRunning) {
		t.Errorf("Uninstall while an agent runs: error %v, want ErrAgentRunning", err)
	}
	tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
}

func TestConcurrentAgentsInsertOneElement(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	var agents sync.WaitGroup
	for range 4 {
		agents.Go(func() { tn.mustBeInstalled(tn.node().Reconcile(context.Background())) })
	}
	agents.Wait()
	tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
	tn.uninstall()
	tn.wantRestored(before)
}
