package cluster_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*apiservertest.Server, *cluster.Client) {
	t.Helper()
	server := apiservertest.StartForAgent(t)
	api, err := apiclient.New(apiclient.Options{
		Server: server.URL(), TokenFile: server.TokenFile(), CAFile: server.CAFile(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.New(api)
	t.Cleanup(c.Close)
	return server, c
}

var name = cluster.Name{Namespace: apiservertest.Namespace, Name: apiservertest.DaemonSet}

// TestWatchDaemonSet checks that the watch returns the DaemonSet, each change, its deletion, and
// changes after an interruption.
func TestWatchDaemonSet(t *testing.T) {
	server, c := start(t)
	seen, broken := make(chan string, 10), make(chan error, 10)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		c.WatchDaemonSet(ctx, name, func(d *cluster.DaemonSet) {
			switch {
			case d == nil:
				seen <- "none"
			case d.IsBeingDeleted():
				seen <- "being deleted"
			default:
				seen <- "exists"
			}
		}, func(err error) { broken <- err })
	}()
	waitFor(t, seen, "exists")
	server.SetDaemonSet(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`)
	waitFor(t, seen, "being deleted")
	server.SetDaemonSet("")
	waitFor(t, seen, "none")
	server.RefuseDaemonSets(403)
	if err := <-broken; !cluster.IsRefused(err) ||
		!strings.Contains(err.Error(), "daemonsets.apps is refused") {
		t.Errorf("the watch reports %v, want the refusal", err)
	}
	server.SetDaemonSet(`{}`)
	server.RefuseDaemonSets(0)
	waitFor(t, seen, "exists")
	cancel()
	<-done
}

// waitFor waits for a value. Earlier values may be repeated.
func waitFor(t *testing.T, seen <-chan string, want string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case got := <-seen:
			if got == want {
				return
			}
		case <-timeout:
			t.Fatalf("the watch has not reported %q within 20 s", want)
		}
	}
}

func TestIsNotFoundAndIsRefused(t *testing.T) {
	server, c := start(t)
	if _, err := c.Node(t.Context(), "node-2"); !cluster.IsNotFound(err) || cluster.IsRefused(err) {
		t.Errorf("a missing node: error %v, want only IsNotFound", err)
	}
	server.SetToken("another")
	if _, err := c.DaemonSet(t.Context(), name); !cluster.IsRefused(err) ||
		cluster.IsNotFound(err) {
		t.Errorf("a rejected token: error %v, want only IsRefused", err)
	}
	server.Stop()
	if _, err := c.DaemonSet(t.Context(), name); err == nil || cluster.IsRefused(err) ||
		cluster.IsNotFound(err) {
		t.Errorf("an unavailable server: error %v, want neither IsRefused nor IsNotFound", err)
	}
}

// TestRepliesOfOthersAreErrors checks that the reply of a proxy does not look like a missing or
// another object.
func TestRepliesOfOthersAreErrors(t *testing.T) {
	server, c := start(t)
	server.Always(apiservertest.Reply(http.StatusOK, "application/json", "{}"))
	if n, err := c.Node(t.Context(), "node-1"); err == nil {
		t.Errorf("Node: %+v, want an error", n)
	}
	if d, err := c.DaemonSet(t.Context(), name); err == nil {
		t.Errorf("DaemonSet: %+v, want an error", d)
	}
	if pods, err := c.Pods(t.Context(), name.Namespace, "k8s-app=sluice-node"); err == nil {
		t.Errorf("Pods: %q, want an error", pods)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.WatchDaemonSet(ctx, name, func(d *cluster.DaemonSet) {
		t.Errorf("the watch reports %+v, want an error", d)
		cancel()
	}, func(error) { cancel() })
	server.Always(apiservertest.Reply(http.StatusNotFound, "text/html", "<h1>no server</h1>"))
	if _, err := c.Node(t.Context(), "node-1"); err == nil || cluster.IsNotFound(err) {
		t.Errorf("404 of a load balancer: error %v, want one that is not IsNotFound", err)
	}
}

// TestUntaintRemovesOnlyTaintsWithTheKey checks that only the taints with the key are removed, and
// that a taint that was added after the node was read is kept: then the node must be read again.
func TestUntaintRemovesOnlyTaintsWithTheKey(t *testing.T) {
	const startup, other, later = `{"effect":"NoSchedule","key":"a/not-ready"}`,
		`{"effect":"NoSchedule","key":"dedicated","value":"gpu"}`,
		`{"effect":"NoExecute","key":"node.kubernetes.io/unreachable"}`
	server, c := start(t)
	untaint := func(n *cluster.Node) error {
		_, err := c.Untaint(t.Context(), n, "a/not-ready")
		return err
	}
	read := func() *cluster.Node {
		t.Helper()
		n, err := c.Node(t.Context(), apiservertest.Node)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	server.SetTaints("["+startup+","+other+"]", 0)
	n := read()
	server.SetTaints("["+startup+","+other+","+later+"]", 0)
	if err := untaint(n); !cluster.IsConflict(err) {
		t.Errorf("a node that has changed: error %v, want a conflict", err)
	}
	if got := server.Taints(); !strings.Contains(got, later) {
		t.Errorf("taints after the conflict: %s, want all", got)
	}
	if err := untaint(read()); err != nil {
		t.Error(err)
	}
	if got, want := server.Taints(), "["+other+","+later+"]"; got != want {
		t.Errorf("taints: %s, want %s", got, want)
	}
}

func TestSendEvent(t *testing.T) {
	server, c := start(t)
	err := c.SendEvent(t.Context(), cluster.Event{
		About: cluster.NodeObject("node-1"), Warning: true, Reason: "DiskFull",
		Message: strings.Repeat("ü", 2000), Node: "node-1", Time: time.Now(),
	})
	events := server.Events()
	if err != nil || len(events) != 1 {
		t.Fatalf("error %v, %d events, want 1", err, len(events))
	}
	e := events[0]
	if e.Type != "Warning" || e.Reason != "DiskFull" || e.InvolvedObject.Kind != "Node" ||
		e.InvolvedObject.Name != "node-1" {
		t.Errorf("the event is %+v, want a warning DiskFull about node-1", e)
	}
	if len(e.Message) > 1024 || !strings.HasSuffix(e.Message, "ü…") {
		t.Errorf("a long message has %d bytes and ends in %q, want at most 1024 and an ellipsis",
			len(e.Message), e.Message[len(e.Message)-5:])
	}
}

// TestEventsContainOnlyPrintableText checks that events contain only the printable characters of
// untrusted text, and that a pod whose name has the maximum length has events too.
func TestEventsContainOnlyPrintableText(t *testing.T) {
	server, c := start(t)
	long := cluster.Object{
		Kind: "Pod", APIVersion: "v1", Namespace: "shop",
		Name: strings.Repeat("x", 235) + "-" + strings.Repeat("y", 17),
	}
	if err := c.SendEvent(t.Context(), cluster.Event{
		About: long, Reason: "R", Message: "a\nb\x1b[2J", Time: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	e := server.Events()[0]
	if e.Message != "a b\ufffd[2J" || e.InvolvedObject.Name != long.Name {
		t.Errorf("the event is %+v, want a printable message about the pod", e)
	}
	if n := e.Metadata.Name; len(n) > 253 || !strings.HasPrefix(n, strings.Repeat("x", 235)+".") {
		t.Errorf("the event's name is %q with %d bytes, want at most 253", n, len(n))
	}
}

// TestPodsAreChangedUnderConditions checks that pods are deleted and labeled with preconditions,
// so that another pod with the same name is not affected.
func TestPodsAreChangedUnderConditions(t *testing.T) {
	server, c := start(t)
	pod := cluster.Name{Namespace: "shop", Name: "web"}
	if err := c.DeletePod(t.Context(), pod, "1", "7"); err != nil {
		t.Error(err)
	}
	if err := c.LabelPod(t.Context(), pod, "1", "cni.istio.io/uninitialized", "true"); err != nil {
		t.Error(err)
	}
	want := []string{
		`DELETE /api/v1/namespaces/shop/pods/web ` +
			`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"1"}}`,
		`PATCH /api/v1/namespaces/shop/pods/web/status {"metadata":{"labels":{"cni.istio.io/uninitialized":"true"},"uid":"1"}}`,
	}
	if diff := cmp.Diff(want, server.PodChanges()); diff != "" {
		t.Errorf("requests (-want +got)\n%s", diff)
	}
	for code, row := range map[int]struct{ conflict, permanent bool }{
		409: {true, true}, 403: {false, true}, 401: {false, false}, 408: {false, false},
		429: {false, false}, 500: {false, false},
	} {
		server.RefusePodChanges(code)
		err := c.DeletePod(t.Context(), pod, "1", "7")
		if cluster.IsConflict(err) != row.conflict || cluster.IsPermanent(err) != row.permanent ||
			!cluster.HasReply(err) {
			t.Errorf("status code %d: conflict %v, permanent %v; want %v and %v; error %v", code,
				cluster.IsConflict(err), cluster.IsPermanent(err), row.conflict, row.permanent, err)
		}
	}
	server.Stop()
	if err := c.DeletePod(t.Context(), pod, "1", "7"); err == nil || cluster.IsPermanent(err) ||
		cluster.HasReply(err) {
		t.Errorf("an unavailable server: error %v, want neither IsPermanent nor HasReply", err)
	}
}
