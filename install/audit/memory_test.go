package audit_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/rulelock"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestMemoryOfTheLargestRulesets measures the memory that the readers of both backends need at
// their limits, in a process of its own, and compares it with MaxReadMemory.
func TestMemoryOfTheLargestRulesets(t *testing.T) {
	if path := os.Getenv("SLUICE_READ_NETNS"); path != "" {
		readLargeRulesets(t, path)
		return
	}
	if os.Getenv("SLUICE_LONG") == "" || budgettest.RaceDetector {
		t.Skip("takes a minute, without the race detector: set SLUICE_LONG=1")
	}
	table := func(before, rule string, n int) string {
		return "table ip t {\n" + before + "chain c {\ntype filter hook output priority 0\n" +
			strings.Repeat(rule+"\n", n) + "}\n}"
	}
	var set strings.Builder
	set.WriteString("set s {\ntype ipv4_addr\nelements = {")
	for i := range 500_000 {
		fmt.Fprintf(&set, "10.%d.%d.%d,", i>>16, i>>8&255, i&255)
	}
	set.WriteString("}\n}\n")
	legacy := "*mangle\n" + strings.Repeat("-A OUTPUT\n", 95_000) + "COMMIT\n"
	for name, text := range map[string]string{
		"short rules":     table("", "accept", 210_000),
		"rules with port": table("", "tcp dport 80 accept", 120_000),
		"rules with mark": table("", "tcp dport 80 meta mark set 1", 100_000),
		"a large set":     table(set.String(), "ip daddr @s accept", 1),
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			istiotest.Run(t, ns, text, "nft", "-f", "-")
			istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, legacy)
			cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfTheLargestRulesets$", "-test.v")
			// The memory limit makes the garbage small.
			cmd.Env = append(os.Environ(), "GOMEMLIMIT=60MiB",
				fmt.Sprintf("SLUICE_READ_NETNS=/proc/%d/fd/%d", os.Getpid(), ns.FD()))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// readLargeRulesets reads the rules of a network namespace, and checks the memory that this needs.
func readLargeRulesets(t *testing.T, path string) {
	handle, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ns := audit.In(handle)
	defer ns.Close()
	before := budgettest.MaxResident(t)
	redirect := rules.DefaultRedirect()
	redirect.OutboundCIDRs.All, redirect.InboundPorts.All = true, true
	found := ns.Foreign(rules.MustCompile(redirect), false, nil, diff.AgentRetryBudget)
	t.Logf("reading: %d MiB, verdict %q, unknown %v", (budgettest.MaxResident(t)-before)>>20,
		found.Verdict(), found.Unknown)
	result, err := ns.Repair(compat.BackendLegacy, rules.MustCompile(redirect), compat.Comparison{})
	if err != nil || result.Outcome == nft.Unchanged {
		t.Errorf("Repair: outcome %q, error %v, want a change", result.Outcome, err)
	}
	used := budgettest.MaxResident(t) - before
	t.Logf("reading and replacing: %d MiB", used>>20)
	if used > rulelock.MaxReadMemory {
		t.Errorf("the read needs %d MiB, want at most %d MiB", used>>20, rulelock.MaxReadMemory>>20)
	}
}

// TestRulesOfOnePodAreReadAtATime checks that two workers do not read the rules of two pods at the
// same time, which together could need twice MaxReadMemory.
func TestRulesOfOnePodAreReadAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, nil)
		var reading, reads atomic.Int32
		for _, name := range []string{"one", "two"} {
			env.addRedirected(meshPod(name)).duringForeign = func() {
				if n := reading.Add(1); n > 1 {
					t.Errorf("the rules of %d pods are read at the same time, want 1", n)
				}
				env.mu.Unlock() // Foreign holds it
				time.Sleep(time.Second)
				env.mu.Lock()
				reading.Add(-1)
				reads.Add(1)
			}
		}
		env.start()
		defer env.stop()
		time.Sleep(10 * time.Second)
		if reads.Load() < 2 {
			t.Errorf("%d reads, want the reads of two pods", reads.Load())
		}
	})
}

// TestReadRulesAreRepairedBeforeOthersAreRead checks that no rules of another pod are read between
// the comparison of a pod and its repair, because the audit keeps the rules of the comparison.
func TestReadRulesAreRepairedBeforeOthersAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, nil)
		pods := []*fakeNamespace{env.addRedirected(meshPod("one")), env.addRedirected(meshPod("two"))}
		for i, s := range pods {
			other := pods[1-i]
			env.set(func() {
				s.checkTime = time.Second
				r := rules.DefaultRedirect() // not the parameters of ADD
				r.InboundPorts.All = false
				s.rules = rules.MustCompile(r)
				s.duringRepair = func() {
					env.mu.Lock()
					defer env.mu.Unlock()
					if other.checked > 0 && other.applied == 0 {
						t.Errorf("%s is repaired while the rules of %s are kept", s.name, other.name)
					}
				}
			})
		}
		env.start()
		defer env.stop()
		time.Sleep(20 * time.Second)
		env.set(func() {
			for _, s := range pods {
				if s.applied != 1 {
					t.Errorf("%s: %d repairs, want 1", s.name, s.applied)
				}
			}
		})
	})
}
