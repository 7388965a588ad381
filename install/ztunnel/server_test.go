package ztunnel_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestSnapshotThenAddAndDelete(t *testing.T) {
	env := start(t, socket(t))
	a, b := pod(t, "a"), pod(t, "b")
	unknown := ztunnel.Pod{UID: "uid-c", Name: "c", Namespace: "default"}
	env.Restore([]ztunnel.Pod{unknown, a})
	c := env.dial(t)

	r, ns, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	want := &zds.Request{Payload: &zds.Request_Add{Add: &zds.AddWorkload{
		Uid: "uid-a",
		WorkloadInfo: &zds.WorkloadInfo{
			Name: "a", Namespace: "default", ServiceAccount: "sa-a",
		},
	}}}
	if !proto.Equal(r, want) || ns == nil || ns.ID() != a.Netns.ID() {
		t.Fatalf("got %v with %v, want %v with %v", r, ns, want, a.Netns.ID())
	}
	if err := c.Ack(""); err != nil {
		t.Fatal(err)
	}
	r, ns, err = c.Next()
	if err != nil || ns != nil || r.GetKeep().GetUid() != "uid-c" {
		t.Fatalf("got %v with %v, error %v; want a keep without a descriptor", r, ns, err)
	}
	if err := c.Ack(""); err != nil {
		t.Fatal(err)
	}
	expectAndAck(t, c, "snapshot")
	env.waitConnected(t, 1, 1)

	results := make(chan error)
	go func() { results <- env.Add(t.Context(), b) }()
	expectUnacknowledged(t, c, "add uid-b")
	select {
	case err := <-results:
		t.Fatalf("Add returned before the acknowledgement: error %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := c.Ack(""); err != nil {
		t.Fatal(err)
	}
	if err := <-results; err != nil {
		t.Fatal(err)
	}
	go func() { results <- env.Remove(t.Context(), "uid-a") }()
	expectAndAck(t, c, "del uid-a")
	if err := <-results; err != nil {
		t.Fatal(err)
	}

	state := env.State()
	since := state.Connections[0].Since
	if want := (ztunnel.State{
		Listening: true, Restored: true,
		Connections: []ztunnel.ConnectionState{{
			ID: 1, PID: state.Connections[0].PID, Version: "V1", Since: since, Ready: true,
		}},
		Pods: []ztunnel.PodState{
			{UID: "uid-b", Netns: b.Netns.ID(), AckedBy: 1},
			{UID: "uid-c"}, // a kept pod is not acknowledged
		},
	}); !cmp.Equal(state, want) {
		t.Errorf("state (-want +got):\n%s", cmp.Diff(want, state))
	}
	if since.IsZero() || state.Connections[0].PID == 0 {
		t.Errorf("the connection is %+v, want a time and a process ID", state.Connections[0])
	}
}

func TestNoZtunnelIsServedBeforeRestore(t *testing.T) {
	env := start(t, socket(t))
	early, removed := pod(t, "early"), pod(t, "removed")
	err := env.Add(t.Context(), early)
	if !errors.Is(err, ztunnel.ErrNotConnected) ||
		!strings.Contains(err.Error(), "pods of the node are not known yet") {
		t.Errorf("Add before Restore: error %v, want ErrNotConnected with the reason", err)
	}
	if err := env.Remove(t.Context(), removed.UID); err != nil {
		t.Error(err)
	}
	z := ztunneltest.Start(t, env.path, nil)
	if got := env.State(); got.Restored || len(got.Connections) > 0 {
		t.Errorf("state %+v, want no connection before Restore", got)
	}
	// The added pod keeps its namespace; the removed one is missing.
	env.Restore([]ztunnel.Pod{{UID: early.UID}, removed, pod(t, "x")})
	z.Wait(t, "snapshot")
	if got, want := z.Messages(), []string{"add uid-early", "add uid-x", "snapshot"}; !slices.Equal(
		got, want) {
		t.Errorf("messages %q, want %q", got, want)
	}
}

func TestAddFailsWithoutZtunnel(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	if err := env.Add(t.Context(), pod(t, "a")); !errors.Is(err, ztunnel.ErrNotConnected) {
		t.Errorf("error %v, want %v", err, ztunnel.ErrNotConnected)
	}
	// A connection without a hello is not a ztunnel.
	silent, err := ztunneltest.Connect(env.path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rulestest.Eventually(t, "the connection is counted", func() bool { return env.count.Load() == 1 })
	if err := env.Add(t.Context(), pod(t, "b")); !errors.Is(err, ztunnel.ErrNotConnected) {
		t.Errorf("error %v, want %v", err, ztunnel.ErrNotConnected)
	}
	if err := env.Remove(t.Context(), "uid-b"); err != nil {
		t.Errorf("Remove without a ztunnel: error %v, want none", err)
	}
	silent.Close()
	rulestest.Eventually(t, "the connection is no longer counted", func() bool { return env.count.Load() == 0 })
	// The pod is sent to a later ztunnel.
	z := ztunneltest.Start(t, env.path, nil)
	z.Wait(t, "snapshot")
	if got := slices.Sorted(maps.Keys(z.Pods())); !slices.Equal(got, []string{"uid-a"}) {
		t.Errorf("pods %q, want only uid-a", got)
	}
}

func TestInvalidPodsAreRejected(t *testing.T) {
	env := start(t, socket(t))
	env.Restore([]ztunnel.Pod{{Name: "a"}})
	env.waitLog(t, "pod not restored")
	for want, p := range map[string]ztunnel.Pod{
		"pod has no UID":                   {Name: "a", Netns: pod(t, "a").Netns},
		"the network namespace is unknown": {UID: "1", Name: "a"},
	} {
		if err := env.Add(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Add: error %v, want %q", err, want)
		}
	}
	closed := pod(t, "closed")
	_ = closed.Netns.Close()
	if err := env.Add(t.Context(), closed); err == nil {
		t.Error("Add of a pod with a closed namespace: no error, want one")
	}
	if err := env.Remove(t.Context(), ""); err == nil {
		t.Error("Remove of an empty uid: no error, want one")
	}
	if got := env.State().Pods; len(got) > 0 {
		t.Errorf("pods %+v, want none", got)
	}
	if err := env.Serve(t.Context(), env.path); err == nil {
		t.Error("second call of Serve: no error, want one")
	}
}

func TestAddReturnsTheRefusal(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	long := strings.Repeat("x", 3000)
	z := ztunneltest.Start(t, env.path, func(r *zds.Request) string {
		if r.GetAdd() != nil {
			return "cannot listen\n" + long
		}
		return ""
	})
	z.Wait(t, "snapshot")
	p := pod(t, "a")
	for range 2 { // each call sends the pod again
		err := env.Add(t.Context(), p)
		if !errors.Is(err, ztunnel.ErrRefused) ||
			!strings.Contains(err.Error(), "pod default/a: ztunnel refused: cannot listen xxx") {
			t.Fatalf("error %v, want ErrRefused with ztunnel's error", err)
		}
		if len(err.Error()) > 1200 {
			t.Errorf("the error has %d bytes, want at most 1200", len(err.Error()))
		}
	}
	if got := env.State(); got.Pods[0].AckedBy != 0 ||
		!strings.HasPrefix(got.Connections[0].LastError, "add default/a: cannot listen") {
		t.Errorf("state %+v, want the error and no acknowledgement", got)
	}
	// Another ztunnel that accepts the pod is sufficient.
	other := ztunneltest.Start(t, env.path, nil)
	other.Wait(t, "snapshot")
	env.waitConnected(t, 2, 2)
	if err := env.Add(t.Context(), p); err != nil {
		t.Error(err)
	}
	if got := env.State().Pods[0]; got.AckedBy != 1 {
		t.Errorf("state %+v, want the acknowledgement of one of two ztunnels", got)
	}
}

func TestRemoveReturnsTheRefusal(t *testing.T) {
	env := start(t, socket(t))
	env.Restore([]ztunnel.Pod{pod(t, "a")})
	refuse := true
	z := ztunneltest.Start(t, env.path, func(r *zds.Request) string {
		if r.GetDel() != nil && refuse {
			refuse = false
			return "busy"
		}
		return ""
	})
	z.Wait(t, "snapshot")
	env.waitConnected(t, 1, 1)
	if err := env.Remove(t.Context(), "uid-a"); !errors.Is(err, ztunnel.ErrRefused) ||
		!strings.Contains(err.Error(), "pod default/a: ztunnel refused: busy") {
		t.Errorf("error %v, want ErrRefused with ztunnel's error", err)
	}
	if err := env.Remove(t.Context(), "uid-a"); err != nil {
		t.Error(err)
	}
	if len(z.Pods()) > 0 {
		t.Errorf("after the second Remove ztunnel has the pods %v, want none", z.Pods())
	}
}

// TestDeleteOfUnknownPodIsSent covers a pod that the server does not know: ztunnel may know it.
func TestDeleteOfUnknownPodIsSent(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	z := ztunneltest.Start(t, env.path, nil)
	z.Wait(t, "snapshot")
	env.waitConnected(t, 1, 1)
	if err := env.Remove(t.Context(), "uid-z"); err != nil {
		t.Fatal(err)
	}
	z.Wait(t, "del uid-z")
}

func TestRepeatedAddIsSentOnlyIfThePodHasChanged(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	z := ztunneltest.Start(t, env.path, nil)
	z.Wait(t, "snapshot")
	env.waitConnected(t, 1, 1)
	p := pod(t, "a")
	replaced := p
	replaced.Netns = pod(t, "other").Netns
	renamed := replaced
	renamed.ServiceAccount = "other"
	for _, p := range []ztunnel.Pod{p, p, replaced, replaced, renamed} {
		if err := env.Add(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := z.Messages(), []string{
		"snapshot", "add uid-a", "add uid-a", "add uid-a",
	}; !slices.Equal(got, want) {
		t.Errorf("messages %q, want %q", got, want)
	}
	if got, want := z.Pods(), map[string]netns.ID{"uid-a": replaced.Netns.ID()}; !maps.Equal(
		got, want) {
		t.Errorf("pods %v, want %v", got, want)
	}
}

// TestAddSendsAKeptPodWithItsNamespace covers a pod that is restored without its namespace and
// added with it later.
func TestAddSendsAKeptPodWithItsNamespace(t *testing.T) {
	env := start(t, socket(t))
	p := pod(t, "a")
	unknown := p
	unknown.Netns = nil
	env.Restore([]ztunnel.Pod{unknown})
	z := ztunneltest.Start(t, env.path, nil)
	z.Wait(t, "snapshot")
	env.waitConnected(t, 1, 1)
	if err := env.Add(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	env.Restore([]ztunnel.Pod{unknown, pod(t, "b")}) // keeps the namespace
	z.Wait(t, "add uid-b")
	if got, want := z.Messages(), []string{
		"keep uid-a", "snapshot", "add uid-a", "add uid-b",
	}; !slices.Equal(got, want) {
		t.Errorf("messages %q, want %q", got, want)
	}
}

func TestAddFailsIfThePodIsRemovedMeanwhile(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	c := env.dial(t)
	expectAndAck(t, c, "snapshot")
	p := pod(t, "a")
	results := make(chan error)
	go func() { results <- env.Add(t.Context(), p) }()
	expectUnacknowledged(t, c, "add uid-a")
	go func() { results <- env.Remove(context.Background(), p.UID) }()
	if err := <-results; err == nil || !strings.Contains(err.Error(), "removed or replaced") {
		t.Errorf("Add: error %v, want one that says that the pod was removed", err)
	}
	if err := c.Ack(""); err != nil {
		t.Fatal(err)
	}
	expectAndAck(t, c, "del uid-a")
	if err := <-results; err != nil {
		t.Error(err)
	}
}
