package node_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// TestRuntimesNoticeChangesOfLinkedConfigurations checks that a runtime, which watches only the
// configuration directory, reads the configurations again after each change of a link's target in
// another directory.
func TestRuntimesNoticeChangesOfLinkedConfigurations(t *testing.T) {
	tn := newTestNode(t)
	addLink(tn)
	isNotified := tn.watchLikeContainerd()
	wantNotified := func(want bool, after string) {
		t.Helper()
		if got := isNotified(); got != want {
			t.Errorf("after %s: the runtime reads the configurations again: %t, want %t", after, got, want)
		}
	}
	n := tn.node()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	wantNotified(true, "the installation")
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	wantNotified(false, "a reconciliation without a change")
	tn.put("elsewhere/calico", list("calico"))
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	wantNotified(true, "a repair")
	tn.mustBeInstalled(tn.reconcile())
	wantNotified(true, "a start, since the last process may have been killed before it notified the runtime")
	tn.uninstall()
	wantNotified(true, "the uninstallation")

	tn.remove("conf/05-link.conflist")
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	isNotified()
	tn.mustBeInstalled(tn.reconcile())
	wantNotified(false, "a start without links")
}

// TestTheNodeIsNotReadyUntilTheRuntimeIsNotified checks that a runtime that could not be notified
// of a link's target is a problem, and that the agent tries again.
func TestTheNodeIsNotReadyUntilTheRuntimeIsNotified(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	addLink(tn)
	makeWritable := filetest.ReadOnly(t, tn.path("conf"))
	n := tn.node()
	for range 2 {
		tn.wantProblem(n.Reconcile(t.Context()), node.ReadOnlyFileSystem,
			"make the runtime read its configuration again")
	}
	makeWritable()
	isNotified := tn.watchLikeContainerd()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	if !isNotified() {
		t.Error("the runtime was not notified by the next reconciliation")
	}
}

// watchLikeContainerd watches the configuration directory for the events after which containerd
// reads the configurations again. The result reports whether there was an event since its last
// call.
func (tn *testNode) watchLikeContainerd() (isNotified func() bool) {
	tn.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	tn.must(err)
	tn.t.Cleanup(func() { _ = unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, tn.path("conf"),
		unix.IN_MODIFY|unix.IN_MOVED_FROM|unix.IN_DELETE)
	tn.must(err)
	return func() bool {
		tn.t.Helper()
		found, buffer := false, make([]byte, 4096)
		for {
			_, err := unix.Read(fd, buffer)
			if errors.Is(err, unix.EAGAIN) {
				return found
			}
			tn.must(err)
			found = true
		}
	}
}
