package compat_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// alternatives lists the rulesets that a test process applies in turn, each with its backend.
var alternatives = []struct {
	backend compat.BackendName
	rs      func() rules.Ruleset
}{
	{compat.BackendLegacy, func() rules.Ruleset {
		return rules.MustCompile(sidecar(dual, allDNS))
	}},
	{compat.BackendLegacy, func() rules.Ruleset {
		return rules.MustCompile(sidecar(dual, tproxy, dropInvalid))
	}},
	{compat.BackendLegacy, func() rules.Ruleset { return rules.MustCompile(sidecar(dual)) }},
	{compat.BackendLegacy, func() rules.Ruleset {
		return rules.MustCompile(sidecar(dual, tproxy))
	}},
	{compat.BackendNFT, func() rules.Ruleset { return rules.MustCompile(sidecar(dual, tproxy)) }},
}

// alwaysCaptured lists packets that all alternatives capture.
var alwaysCaptured = []string{
	"in tcp 10.9.9.9:50000 > 10.244.1.5:8080",
	"in tcp [2001:db8::9]:50000 > [fd00::5]:8080",
	"out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000",
	"out tcp [fd00::5]:40000 > [2001:db8::1]:443 uid 1000",
	"out tcp 10.244.1.5:40000 > 10.244.1.5:8080 dev lo uid 1337",
}

// TestKilledApplierLetsNoPacketBypass kills, at a random moment, a process that applies rules.
// Packets that were captured before must be captured or dropped, and the next Apply must complete.
func TestKilledApplierLetsNoPacketBypass(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	outcomes := map[string]int{}
	for range times(rulestest.Trials(80, os.Getenv), 400) {
		if _, err := chosen(t,
			compat.BackendLegacy).Apply(ns, alternatives[0].rs(), compat.Snapshot{}); err != nil {
			t.Fatal(err)
		}
		p := start(t, ns, "apply alternately")
		for range 1 + random.IntN(len(alternatives)) {
			p.line(t)
		}
		// An Apply takes milliseconds. The loop waits without yielding the processor.
		for begin, wait := time.Now(),
			time.Duration(random.IntN(3_000))*time.Microsecond; time.Since(begin) < wait; {
			continue
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
		outcomes[fmt.Sprint(wantCapturedOrDropped(t, ns))]++
		rs := compiled(t, dual, tproxy, allDNS)
		applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, rs, nft.Replaced)
	}
	t.Log(outcomes)
	if os.Getenv("SLUICE_LONG") == "1" && len(outcomes) < 2 {
		t.Errorf("all processes were killed in the state %v, want at least two states", outcomes)
	}
}

// wantCapturedOrDropped verifies that the packets of alwaysCaptured are captured or dropped, and
// returns their outcomes.
func wantCapturedOrDropped(t *testing.T, ns *netns.NS) []rules.Outcome {
	t.Helper()
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []rules.Outcome
	for _, text := range alwaysCaptured {
		packet, err := rules.ParsePacket(text)
		if err != nil {
			t.Fatal(err)
		}
		outcome := diff.Explain(&live.Ruleset, packet).Outcome
		if !outcome.Captured() && !outcome.Dropped {
			t.Fatalf("%s: %s, want captured or dropped\n%s", text, outcome, &live.Ruleset)
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes
}

// TestNoStepLetsPacketsBypass stops a change of the iptables-legacy rules after each of its steps.
// The next Apply completes the change.
func TestNoStepLetsPacketsBypass(t *testing.T) {
	// The last ruleset equals the one before it. Only their backends differ.
	rulesets := alternatives[:len(alternatives)-1]
	for i, from := range rulesets {
		for j, to := range rulesets {
			t.Run(fmt.Sprintf("from %d to %d", i, j), func(t *testing.T) {
				t.Parallel() // the test mostly waits for the kernel
				if stops := noStepLetsPacketsBypass(t, from.rs(), to.rs()); i != j && stops < 3 {
					t.Errorf("the change was stopped %d times, want at least before, during and after it", stops)
				}
			})
		}
	}
}

// noStepLetsPacketsBypass stops the change after 0 steps, 1 step and so on until it is complete,
// and verifies after each stop that no packet bypasses the proxy. It returns the number of stops.
func noStepLetsPacketsBypass(t *testing.T, from, to rules.Ruleset) (stops int) {
	ns := netnstest.New(t)
	b := chosen(t, compat.BackendLegacy)
	l, err := compat.Translate(to)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; stops++ {
		if _, err := b.Apply(ns, from, compat.Snapshot{}); err != nil {
			t.Fatal(err)
		}
		if more, err = compat.BeginApply(ns, l.Tables, stops); err != nil {
			t.Fatal(err)
		}
		wantCapturedOrDropped(t, ns)
		if _, err := b.Apply(ns, to, compat.Snapshot{}); err != nil {
			t.Fatal(err)
		}
		wantInSync(t, b, ns, to)
	}
	return stops
}

// applyAlternately applies the alternatives in turn, and prints a line before each Apply.
func applyAlternately(ns *netns.NS, _ *bufio.Reader) error {
	for i := 0; ; i++ {
		a := alternatives[i%len(alternatives)]
		b, err := compat.Choose(a.backend)
		if err != nil {
			return err
		}
		if _, err := fmt.Println("next"); err != nil {
			return err
		}
		if _, err := b.Apply(ns, a.rs(), compat.Snapshot{}); err != nil {
			return err
		}
	}
}
