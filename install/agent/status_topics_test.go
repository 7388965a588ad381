package agent

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

// TestTopicsContainStateFactsAndRemedy checks that each topic about pods and conflicts contains the
// state, the facts, and the remedy for a problem.
func TestTopicsContainStateFactsAndRemedy(t *testing.T) {
	type counts = map[string]int
	paths := strings.NewReplacer("/mounted", "/etc/cni")
	writer := node.ConflictingWriter{File: "/mounted/10-net.conflist", Writer: "Calico", Advice: "stop it", Rewrites: 6}
	for _, tc := range []struct {
		topic agent.Topic
		want  string // prefix
	}{
		{podsTopic(nil, true, true), "off: the pods of the node are not audited | "},
		{podsTopic(counts{"redirected": 0}, false, true), "unknown: the node's pods have not been listed yet | "},
		{podsTopic(counts{"drifted": 1}, false, true), "unknown: the node's pods have not been listed yet | "},
		{podsTopic(counts{"redirected": 3, "drifted": 0}, true, true), "ok: 3 redirected | "},
		{podsTopic(counts{"redirected": 3, "drifted": 1}, true, true), "problem: 1 drifted; 3 redirected | see the events of the pods; rules check"},
		{podsTopic(counts{"unprotected": 1, "unknown": 1}, true, true), "problem: 1 unknown; 1 unprotected | see the events of the pods; rules check"},
		{podsTopic(counts{"unprotected": 1}, true, false), "problem: 1 unprotected | "},
		{podsTopic(counts{"redirected": 3, "unknown": 1}, true, true), "unknown: 3 redirected; 1 unknown | see the events of the pods; pods whose"},
		{podsTopic(counts{"redirected": 3}, true, false), "off: 3 redirected; only pods that started without the plugin are audited"},
		{driftTopic(counts{"absent": 0}, true), "ok: none since the agent started | "},
		{driftTopic(counts{"absent": 2, "changed": 1}, true), "ok: since the agent started: 2 absent, 1 changed | see the events of the pods for the process"},
		{driftTopic(counts{"absent": 2}, false), "off: pods are not compared"},
		{conflictsTopic(counts{}, nil, paths), "ok: none since the agent started | "},
		{conflictsTopic(counts{"Calico": 2}, nil, paths), "ok: rewrites since the agent started: 2 Calico | "},
		{
			conflictsTopic(counts{"Calico": 6}, []node.ConflictingWriter{writer}, paths),
			"problem: rewrites since the agent started: 6 Calico; Calico has repeatedly removed or replaced /etc/cni/10-net.conflist",
		},
	} {
		got := string(tc.topic.State) + ": " + strings.Join(tc.topic.Facts, "; ") + " | " + tc.topic.Next
		if !strings.HasPrefix(got, tc.want) {
			t.Errorf("the topic is  %s\nwant the prefix %s", got, tc.want)
		}
	}
	if got := conflictsTopic(nil, []node.ConflictingWriter{writer}, paths).Next; got != writer.Advice {
		t.Errorf("the remedy for a conflicting writer is %q, want %q", got, writer.Advice)
	}
}
