package audit_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestAnHourOfEventsLeavesNothingBehind simulates an hour in which many pods are created, changed
// and deleted, with and without ADD, and rules are removed. At the end all remaining pods are
// redirected. After their deletion neither memory nor the disk contains any of the pods.
func TestAnHourOfEventsLeavesNothingBehind(t *testing.T) {
	before := netnstest.Descriptors(t)
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, nil)
		random := rand.New(rand.NewPCG(1, 2))
		existing := map[string]*decide.Pod{}
		deleted := map[string]bool{} // the UIDs of deleted pods
		anyPod := func() *decide.Pod {
			for _, p := range existing {
				return p
			}
			return nil
		}
		deletePod := func(p *decide.Pod) {
			deleted[p.Metadata.UID] = true
			env.mu.Lock()
			delete(env.namespaces, env.netnsPaths[p.Metadata.UID])
			delete(env.netnsPaths, p.Metadata.UID)
			env.mu.Unlock()
			if err := env.options.Records.Remove(record.Key{
				ContainerID: "c-" + p.Metadata.UID, IfName: "eth0",
			}); err != nil {
				t.Fatal(err)
			}
			env.delete(p)
			delete(existing, p.Metadata.UID)
		}
		steps := rulestest.Trials(2000, os.Getenv)
		for i := range steps {
			p := anyPod()
			switch kind := random.IntN(12); {
			case p == nil || kind < 3 && len(existing) < 60 || len(existing) < 20:
				p = meshPod(fmt.Sprintf("pod-%d", i))
				existing[p.Metadata.UID] = p
				switch kind {
				case 0:
					env.addSandbox(p)
					env.put(p, podcache.PodStatus{Phase: "Pending"}) // created before the plugin was installed
				case 1:
					env.put(p, podcache.PodStatus{Phase: "Pending"})
					env.addRedirected(p)
				default:
					env.addRedirected(p)
				}
			case kind < 4:
				deletePod(p)
			case kind < 7:
				env.put(p, running)
			case kind < 9: // another pod with the same name
				next := *p
				next.Metadata.UID = fmt.Sprintf("uid-%d", i)
				deletePod(p)
				existing[next.Metadata.UID] = &next
				env.addSandbox(&next)
				env.put(&next, running)
			case kind < 11:
				env.mu.Lock()
				s := env.namespaces[env.netnsPaths[p.Metadata.UID]]
				s.rules = rules.Ruleset{}
				env.mu.Unlock()
				if kind == 10 {
					env.ruleEvents <- watch.Event{NS: s.id, Rules: true, PID: 1, Process: "nft"}
				}
			default:
				env.ruleEvents <- watch.Event{Lost: true}
			}
			time.Sleep(time.Hour / time.Duration(steps))
		}
		advance(3 * time.Minute)
		if got, want := env.states(), fmt.Sprintf("%d redirected", len(existing)); got != want {
			t.Errorf("states: %s, want %s", got, want)
		}
		if env.metric("sluice_repairs_total{drift,repair,success}") < float64(steps/20) ||
			env.metric("sluice_repairs_total{race,repair,success}") < float64(steps/20) {
			t.Errorf("counted %v, want at least %d repairs of each cause", env.counted, steps/20)
		}
		for _, p := range existing {
			deletePod(p)
		}
		advance(time.Second)
		if entries := env.EntryCount(); entries != 0 {
			t.Errorf("after the deletion of all pods the auditor has %d entries, want none", entries)
		}
		for uid := range deleted {
			if n := env.AttemptCount(uid); n > 0 {
				t.Errorf("the rate limiters have %d attempts of the deleted pod %s, want none", n, uid)
			}
		}
		for path, s := range env.namespaces {
			if s.open != 0 {
				t.Errorf("%s is open %d times at the end, want never", path, s.open)
			}
		}
		if kept, err := env.options.Repairs.List(); len(kept) > 0 || err != nil {
			t.Errorf("stored repairs %v, error %v, want none", kept, err)
		}
	})
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after; want not more", before, after)
	}
}
