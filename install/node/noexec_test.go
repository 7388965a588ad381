package node_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// TestNodeIsNotReadyIfTheRuntimeMayNotExecuteThePlugin covers a plugin directory that the node
// mounts with the option noexec.
func TestNodeIsNotReadyIfTheRuntimeMayNotExecuteThePlugin(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	m := newMountedNode(t)
	bin := m.path("node/opt/cni/bin")
	m.onNode("mount", "--bind", bin, bin)
	m.onNode("mount", "-o", "remount,bind,noexec", bin)
	before := m.chains()
	s := m.reconcileAfter(0)
	if !hasBlockingProblem(s, node.PermissionDenied) {
		t.Errorf("before the insertion: problems %v, want a blocking PermissionDenied", s.Problems)
	}
	m.wantChains(before)

	m.onNode("mount", "-o", "remount,bind,exec", bin)
	m.mustBeInstalled(m.reconcileAfter(time.Second))
	inserted := map[string]string{"10-a.conflist": "calico sluice-cni"}
	m.wantChains(inserted)

	m.onNode("mount", "-o", "remount,bind,noexec", bin)
	s = m.reconcileAfter(time.Second)
	if !hasBlockingProblem(s, node.PermissionDenied) {
		t.Errorf("after the insertion: problems %v, want a blocking PermissionDenied", s.Problems)
	}
	m.wantChains(inserted)
}

func hasBlockingProblem(s node.Status, reason node.Reason) bool {
	for _, p := range s.Problems {
		if p.Blocking && p.Reason == reason {
			return true
		}
	}
	return false
}
