package plugin_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestVerbsLeakNothing checks that a verb leaves no open file, socket or namespace, whether it
// succeeds or fails. TestMain checks goroutines.
func TestVerbsLeakNothing(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	wrong := c
	wrong.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"x"}]}`
	wrong.stdin = wrong.configuration()
	valid := c
	valid.stdin = c.configuration(`"cni.dev/valid-attachments":[]`)
	round := func() {
		for _, step := range []struct {
			verb     string
			call     sandboxCall
			succeeds bool
		}{
			{"ADD", wrong, false},
			{"ADD", c, true},
			{"ADD", c, true},
			{"CHECK", c, true},
			{"STATUS", c, true},
			{"DEL", c, true},
			{"CHECK", c, false},
			{"GC", valid, true},
			{"GC", c, false},
		} {
			if e := env.call(step.verb, step.call); (e == nil) != step.succeeds {
				t.Fatalf("%s: %v, want success %t", step.verb, e, step.succeeds)
			}
		}
	}
	round() // the first round opens the descriptors of Go's network poller
	before := netnstest.Descriptors(t)
	for range 20 {
		round()
	}
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d open files after 20 rounds, want at most %d as before", after, before)
	}
}
