package watch_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a watcher in a namespace, and closes it when the test ends.
func open(t testing.TB, ns *netns.NS) *watch.Watcher {
	t.Helper()
	var w *watch.Watcher
	err := ns.Do(func() (err error) {
		w, err = watch.Open()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// add adds namespaces to the watcher.
func add(t testing.TB, w *watch.Watcher, namespaces ...*netns.NS) {
	t.Helper()
	for _, ns := range namespaces {
		if err := w.Add(ns); err != nil {
			t.Fatal(err)
		}
	}
}

// nextEvent returns the next event.
func nextEvent(t testing.TB, w *watch.Watcher) watch.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// checkNoEvent checks that no event is pending: in a new namespace, it makes one change for each
// socket of the watcher, and fails if an event of another namespace precedes these changes.
func checkNoEvent(t testing.TB, w *watch.Watcher) {
	t.Helper()
	marker := netnstest.New(t)
	add(t, w, marker)
	ip(t, marker, "rule add lookup 7")
	nft(t, marker, "add table inet marker")
	for rules, routes := false, false; !rules || !routes; {
		e := nextEvent(t, w)
		if e.NS != marker.ID() {
			t.Fatalf("got %+v, want only events of the marker namespace %s", e, marker)
		}
		rules, routes = rules || e.Rules, routes || e.Routes
	}
}

// checkReported checks that a change of rules in each namespace is reported for this namespace.
func checkReported(t *testing.T, w *watch.Watcher, namespaces ...*netns.NS) {
	t.Helper()
	for _, ns := range namespaces {
		nft(t, ns, "add table inet x")
		checkRulesEvent(t, w, ns)
	}
}

// checkRulesEvent checks that the next event reports a change of rules in the namespace.
func checkRulesEvent(t *testing.T, w *watch.Watcher, ns *netns.NS) {
	t.Helper()
	if e := nextEvent(t, w); e.NS != ns.ID() || !e.Rules {
		t.Errorf("got %+v, want a change of rules in %s", e, ns)
	}
}

// nft changes rules in one transaction.
func nft(t testing.TB, ns *netns.NS, text string) {
	t.Helper()
	run(t, ns, text, netnstest.RequireBinary(t, "nft"), "-f", "-")
}

// ip runs the program ip for each command.
func ip(t testing.TB, ns *netns.NS, commands ...string) {
	t.Helper()
	for _, c := range commands {
		run(t, ns, "", netnstest.RequireBinary(t, "ip"), strings.Fields(c)...)
	}
}

func run(t testing.TB, ns *netns.NS, stdin, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := ns.Do(cmd.Run); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out.String())
	}
}
