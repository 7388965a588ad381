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
	"github.com/sluice-mesh/sluice/install/file/filetest"
	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/install/node"
)

// Each row is something that others do to a node that is being kept, and what must be so within a second.
func TestWhatOthersDoIsPutRightWithinASecond(t *testing.T) {
	var longest time.Duration
	for name, row := range map[string]struct {
		settings func(s *node.Settings)
		do       func(b *bed)
		want     map[string]string
	}{
		"a configuration that comes before the primary one": {
			do:   func(b *bed) { b.put("conf/05-new.conflist", list("cilium-cni")) },
			want: map[string]string{"05-new.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
		},
		"a plain one that comes before": {
			do:   func(b *bed) { b.put("conf/05-new.conf", plainBridge) },
			want: map[string]string{"05-new.conflist": "bridge sluice-cni", "10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
		},
		"the primary one is deleted": {
			do:   func(b *bed) { b.remove("conf/10-a.conflist") },
			want: map[string]string{"20-b.conflist": "flannel sluice-cni"},
		},
		"the primary one is renamed": {
			do: func(b *bed) {
				b.must(os.Rename(b.path("conf/10-a.conflist"), b.path("conf/30-a.conflist")))
			},
			want: map[string]string{"20-b.conflist": "flannel sluice-cni", "30-a.conflist": "calico sluice-cni"},
		},
		"the primary one is put aside": {
			do: func(b *bed) {
				b.must(os.Rename(b.path("conf/10-a.conflist"), b.path("conf/10-a.conflist.cilium_bak")))
			},
			want: map[string]string{"10-a.conflist.cilium_bak": "calico sluice-cni", "20-b.conflist": "flannel sluice-cni"},
		},
		"the primary one is written anew": {
			do:   func(b *bed) { b.put("conf/10-a.conflist", list("calico", "bandwidth")) },
			want: map[string]string{"10-a.conflist": "calico bandwidth sluice-cni", "20-b.conflist": "flannel"},
		},
		"it is written in place": {
			do: func(b *bed) {
				b.must(os.WriteFile(b.path("conf/10-a.conflist"), []byte(list("calico", "tuning")), 0o644))
			},
			want: map[string]string{"10-a.conflist": "calico tuning sluice-cni", "20-b.conflist": "flannel"},
		},
		"a plugin is put behind ours": {
			do:   func(b *bed) { b.put("conf/10-a.conflist", list("calico", "sluice-cni", "tuning")) },
			want: map[string]string{"10-a.conflist": "calico tuning sluice-cni", "20-b.conflist": "flannel"},
		},
		"our entry is tampered with": {
			do: func(b *bed) {
				b.put("conf/10-a.conflist", strings.Replace(b.read("conf/10-a.conflist"), `"info"`, `"error"`, 1))
			},
			want: map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
		},
		"our entry is there twice": {
			do:   func(b *bed) { b.put("conf/10-a.conflist", list("calico", "sluice-cni", "sluice-cni")) },
			want: map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
		},
		"the executable is deleted":     {do: func(b *bed) { b.remove("bin/sluice-cni") }, want: asBefore},
		"the executable is overwritten": {do: func(b *bed) { b.executable("sluice-cni", "something else") }, want: asBefore},
		"the executable cannot be run":  {do: func(b *bed) { b.must(os.Chmod(b.path("bin/sluice-cni"), 0o644)) }, want: asBefore},
		"the directory is made anew": {
			do: func(b *bed) {
				b.must(os.Rename(b.path("conf"), b.path("old")))
				b.put("conf/10-a.conflist", list("calico"))
			},
			want: map[string]string{"10-a.conflist": "calico sluice-cni"},
		},
		"our own configuration is deleted": {
			settings: owned,
			do:       func(b *bed) { b.remove("conf/02-istio-cni.conflist") },
			want:     map[string]string{"02-istio-cni.conflist": "calico sluice-cni", "10-a.conflist": "calico", "20-b.conflist": "flannel"},
		},
		"what our own configuration is a copy of changes": {
			settings: owned,
			do:       func(b *bed) { b.put("conf/10-a.conflist", list("calico", "bandwidth")) },
			want:     map[string]string{"02-istio-cni.conflist": "calico bandwidth sluice-cni", "10-a.conflist": "calico bandwidth", "20-b.conflist": "flannel"},
		},
		"what our own configuration is a copy of goes": {
			settings: owned,
			do:       func(b *bed) { b.remove("conf/10-a.conflist") },
			want:     map[string]string{"02-istio-cni.conflist": "flannel sluice-cni", "20-b.conflist": "flannel"},
		},
		"the stand-alone configuration is tampered with": {
			settings: func(s *node.Settings) { s.Chained = false },
			do:       func(b *bed) { b.put("conf/YYY-sluice-cni.conf", `{"name":"x","type":"sluice-cni"}`) },
			want:     map[string]string{"10-a.conflist": "calico", "20-b.conflist": "flannel", "YYY-sluice-cni.conf": "plain sluice-cni"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.putAll(map[string]string{"conf/10-a.conflist": list("calico"), "conf/20-b.conflist": list("flannel")})
			b.settings.Resync = time.Hour // events alone must do
			if row.settings != nil {
				row.settings(&b.settings)
			}
			n := b.node()
			statuses := b.running(n)
			await(t, statuses, "installed", node.Status.Installed)
			row.do(b)
			done := time.Now()
			right := func(s node.Status) bool {
				return s.Installed() && equal(b.chains(), row.want) && b.elementIs(elementV1) && b.executableIs(pluginV1)
			}
			await(t, statuses, "put right", right)
			longest = max(longest, time.Since(done))
		})
	}
	t.Logf("the longest took %v", longest)
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

// elementIs reports whether each element of ours in a list is the wanted one.
func (b *bed) elementIs(want string) bool {
	for name := range b.chains() {
		l, err := chain.Parse([]byte(b.read("conf/" + name)))
		if err != nil || strings.HasSuffix(name, "_bak") {
			continue
		}
		if slices.ContainsFunc(l.Elements("sluice-cni"), func(p chain.Plugin) bool { return !chain.Equal(p.Raw, []byte(want)) }) {
			return false
		}
	}
	return true
}

func (b *bed) executableIs(want string) bool {
	data, err := os.ReadFile(b.path("bin/sluice-cni"))
	info, statErr := os.Stat(b.path("bin/sluice-cni"))
	return err == nil && statErr == nil && string(data) == want && info.Mode().Perm() == 0o755
}

func TestANetworkThatComesLateIsServed(t *testing.T) {
	b := newBed(t)
	b.settings.Resync = time.Hour
	b.remove("conf")
	statuses := b.running(b.node())
	await(t, statuses, "told", func(s node.Status) bool { return !s.Installed() && len(s.Problems) > 0 })
	b.put("conf/10-a.conf", plainBridge)
	await(t, statuses, "installed", node.Status.Installed)
	b.wantChains(map[string]string{"10-a.conflist": "bridge sluice-cni"})
}

func TestWithoutEventsTheTimerSuffices(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	filetest.Deny(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE) // as where all instances are used up
	b := newBed(t)
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
	b := newBed(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.settings.Resync = time.Hour
	n := b.node()
	statuses := b.running(n)
	await(t, statuses, "installed", node.Status.Installed)
	for _, step := range []struct {
		set  func(s *node.Settings)
		want map[string]string
	}{
		{owned, map[string]string{"02-istio-cni.conflist": "calico sluice-cni", "10-a.conflist": "calico"}},
		{func(s *node.Settings) { s.Chained = false }, map[string]string{"10-a.conflist": "calico", "YYY-sluice-cni.conf": "plain sluice-cni"}},
		{func(*node.Settings) {}, map[string]string{"10-a.conflist": "calico sluice-cni"}},
	} {
		s := b.settings
		step.set(&s)
		b.must(n.Update(s))
		await(t, statuses, "changed over", func(s node.Status) bool { return s.Installed() && equal(b.chains(), step.want) })
	}
	s := b.settings
	s.CNIConfDir = b.path("elsewhere")
	if err := n.Update(s); err == nil {
		t.Error("the directory was changed")
	}
}

func TestUninstallingIsRefusedWhileAnAgentRuns(t *testing.T) {
	b := newBed(t)
	b.put("conf/10-a.conflist", list("calico"))
	statuses := b.running(b.node())
	await(t, statuses, "installed", node.Status.Installed)
	if _, err := b.node().Uninstall(t.Context(), 0); !errors.Is(err, journal.ErrPresent) {
		t.Errorf("uninstalled beside a running agent: %v", err)
	}
	b.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
}

func TestTwoAgentsDuringARollingUpdate(t *testing.T) {
	b := newBed(t)
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
