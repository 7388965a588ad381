package audit_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestHostileAnnotationsDelayNoOtherPod covers annotations of an attacker: a pod with an invalid
// annotation is reported in a short printable message, and is not repaired. Another pod of the node
// is repaired at the same time.
func TestHostileAnnotationsDelayNoOtherPod(t *testing.T) {
	const maxLen = 4 << 10 // cluster.SendEvent truncates messages to 1 KiB
	for name, value := range map[string]string{
		"control characters": "80\n2026-11-20 INFO all is well\x1b[2J\x00",
		"invalid UTF-8":      "80\xff\xfe,\xc3\x28",
		"the maximum length": strings.Repeat("x", 256<<10),
		"40,000 values":      strings.Repeat("80a,", 40_000),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, lines := observer.New(zap.DebugLevel)
				bad, good := meshPod("bad"), meshPod("good")
				bad.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = value
				var badNS, goodNS *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) {
					env.options.Log = zap.New(core)
					badNS, goodNS = env.addSandbox(bad), env.addSandbox(good)
					env.put(bad, running)
					env.put(good, running)
				})
				if badNS.applied > 0 || goodNS.applied != 1 {
					t.Errorf("applied %d and %d times, want never and once: %s", badNS.applied, goodNS.applied,
						env.states())
				}
				unprintable := func(c rune) bool { return !unicode.IsPrint(c) }
				reported := 0
				for _, e := range env.events {
					if strings.Contains(e.Message, "excludeOutboundPorts") {
						reported++
					}
					if !utf8.ValidString(e.Message) ||
						strings.ContainsFunc(e.Message, unprintable) || len(e.Message) > maxLen {
						t.Errorf("an event that is too long or not printable, of %d bytes: %.200q", len(e.Message), e.Message)
					}
				}
				for _, line := range lines.All() {
					if strings.ContainsFunc(line.Message, unicode.IsControl) {
						t.Errorf("a line of the log with control characters: %.200q", line.Message)
					}
				}
				if reported == 0 {
					t.Errorf("no event names the annotation: %+v", env.events)
				}
			})
		})
	}
}
