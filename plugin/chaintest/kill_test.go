package chaintest_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// TestAKilledADDLeavesAllRulesOrNone kills the plugin with SIGKILL at random times during an ADD.
// With nft a pod then has its complete ruleset or no part of it. With both backends the next ADD
// completes the rules, and DEL leaves no record.
func TestAKilledADDLeavesAllRulesOrNone(t *testing.T) {
	t.Parallel()
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			c := chain{version: latest, fields: map[string]any{"backend": string(backend)}}
			n := newNode(t)
			whole, elapsed := n.measureADD(t, c)
			seed := uint64(time.Now().UnixNano())
			random := rand.New(rand.NewPCG(seed, 0))
			found := map[string]int{}
			for range repetitions(6, 150) {
				p := n.newPod(t, "tproxy")
				result := someResult(p)
				p.killADD(t, c, result, time.Duration(random.Int64N(int64(elapsed))))
				remaining := p.rules(t)
				switch {
				case remaining == "":
					found["none"]++
				case remaining == whole:
					found["whole"]++
				case backend == compat.BackendNFT:
					t.Fatalf("seed %d: an incomplete ruleset (-complete +found):\n%s", seed, cmp.Diff(whole, remaining))
				default:
					found["some of the tables"]++
				}
				if _, err := p.execute(t, "ADD", c, result); err != nil {
					t.Fatalf("seed %d: ADD after the kill: %v", seed, err)
				}
				if diff := cmp.Diff(whole, p.rules(t)); diff != "" {
					t.Fatalf("seed %d: after the next ADD (-want +got):\n%s", seed, diff)
				}
				if _, err := p.execute(t, "CHECK", c, result); err != nil {
					t.Fatalf("seed %d: CHECK after the next ADD: %v", seed, err)
				}
				if _, err := p.execute(t, "DEL", c, result); err != nil {
					t.Fatalf("seed %d: DEL: %v", seed, err)
				}
			}
			n.checkRecords(t)
			t.Logf("killed within %v of an ADD: %v", elapsed, found)
			if os.Getenv("SLUICE_LONG") == "1" && len(found) < 2 {
				t.Errorf("all processes were killed in the state %v, want at least two states", found)
			}
		})
	}
}

// measureADD adds a pod, returns its rules and the duration of ADD, and deletes the pod.
func (n *node) measureADD(t testing.TB, c chain) (whole string, elapsed time.Duration) {
	t.Helper()
	p := n.newPod(t, "tproxy")
	x := p.execution(t, "ADD", c, someResult(p))
	begin := time.Now()
	if err := x.run(n); err != nil {
		t.Fatal(err)
	}
	elapsed = time.Since(begin)
	if whole = p.rules(t); whole == "" {
		t.Fatal("no rules after ADD, want some")
	}
	if _, err := p.execute(t, "DEL", c, nil); err != nil {
		t.Fatal(err)
	}
	return whole, elapsed
}

// killADD starts ADD, and kills it after the given time unless it has ended.
func (p *pod) killADD(t testing.TB, c chain, previous *types100.Result, after time.Duration) {
	t.Helper()
	cmd := p.execution(t, "ADD", c, previous).cmd()
	p.node.in(t, cmd.Start)
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
}

// rules returns the rules of Sluice in the pod, of both backends, as text; empty if there are none.
func (p *pod) rules(t testing.TB) string {
	t.Helper()
	var found rules.Ruleset
	for _, b := range compat.Backends() {
		rs, err := b.Read(p.ns)
		if err != nil {
			t.Fatal(err)
		}
		found.Tables = append(found.Tables, rs.Tables...)
	}
	if len(found.Tables) == 0 {
		return ""
	}
	return found.String()
}
