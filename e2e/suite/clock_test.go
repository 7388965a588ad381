package suite_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkClock sets the node's clock forward by two hours, and back in two steps. After each step it
// checks that pods start, that flushed rules are restored and that the agent is ready. It never
// sets the clock to a time before the certificates are valid, because the kubelet would reject
// them.
func checkClock(t *testing.T, tc *testCluster) {
	before := tc.agentPod(t)
	for _, step := range []string{"+2 hours", "-1 hours", "-1 hours"} {
		t.Logf("%s: %s", step, mustPrint(t, tc.node(), "date", "--set="+step))
		checkFlush(t, tc)
		eventually(t, readyTimeout, "the agent is ready", func(ctx context.Context) error {
			return tc.checkAgentsReady(ctx, agent)
		})
	}
	after := tc.agentPod(t)
	if after.UID != before.UID ||
		after.Status.ContainerStatuses[0].RestartCount != before.Status.ContainerStatuses[0].RestartCount {
		t.Errorf("the agent was restarted: pod %s, containers %+v", after.Name, after.Status.ContainerStatuses)
	}
	events, err := tc.client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=PluginBypassed"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		t.Errorf("event %s of %s, want none: %s", e.Reason, e.InvolvedObject.Name, e.Message)
	}
}
