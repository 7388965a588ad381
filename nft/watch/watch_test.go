package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/nftables"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/watch"
)

func TestARuleChangeIsReportedOnceWithItsThread(t *testing.T) {
	agent, pod, userns := netnstest.New(t), netnstest.New(t), netnstest.NewInUserNS(t)
	w := open(t, agent)
	add(t, w, pod, userns, agent)
	for _, ns := range []*netns.NS{pod, userns, agent} {
		var last uint32
		for range 2 {
			nft(t, ns,
				"add table inet x; add chain inet x y; add rule inet x y accept; add rule inet x y drop")
			e := nextEvent(t, w)
			if e.PID == 0 || e.Generation <= last {
				t.Errorf("%s: got %+v, want a thread and a generation after %d", ns, e, last)
			}
			if e.Generation != generation(t, ns) {
				t.Errorf("%s: generation %d, want %d", ns, e.Generation, generation(t, ns))
			}
			last = e.Generation
			e.PID, e.Generation = 0, 0
			if want := (watch.Event{
				NS: ns.ID(), Rules: true, Count: 1, Process: "nft",
			}); e != want {
				t.Errorf("%s: got %+v, want %+v", ns, e, want)
			}
		}
	}
	checkNoEvent(t, w)
}

// generation returns the generation id of the ruleset, read with google/nftables.
func generation(t *testing.T, ns *netns.NS) uint32 {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	gen, err := c.GetGen()
	if err != nil {
		t.Fatal(err)
	}
	return gen.ID
}

func TestAddOfNilAddsTheNamespaceOfTheThread(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	for _, ns := range []*netns.NS{agent, pod} {
		if err := ns.Do(func() error { return w.Add(nil) }); err != nil {
			t.Fatal(err)
		}
		checkReported(t, w, ns)
	}
}

func TestNamespacesThatWereNotAddedAreNotReported(t *testing.T) {
	agent, pod, other := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	nft(t, other, "add table inet x")
	nft(t, agent, "add table inet x")
	checkNoEvent(t, w)
}

func TestEventsRepresentSeveralChangesOfABurst(t *testing.T) {
	agent, pods := netnstest.New(t), []*netns.NS{netnstest.New(t), netnstest.New(t)}
	w := open(t, agent)
	add(t, w, pods...)
	const changesPerPod = 20
	for range changesPerPod {
		for _, ns := range pods {
			nft(t, ns, "add table inet x; delete table inet x")
		}
	}
	counts, events := map[netns.ID]int{}, 0
	for counts[pods[0].ID()] < changesPerPod || counts[pods[1].ID()] < changesPerPod {
		e := nextEvent(t, w)
		counts[e.NS] += e.Count
		events++
	}
	if len(counts) != 2 || events > changesPerPod {
		t.Errorf("%d events with the counts %v, want at most %d events of two namespaces",
			events, counts, changesPerPod)
	}
}

func TestChangesOfPolicyRoutesAreReported(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	w := open(t, agent)
	add(t, w, pod)
	for _, row := range []struct {
		name     string
		before   []string
		command  string
		reported bool
	}{
		{"a policy rule is added", nil, "rule add fwmark 1337 lookup 133 priority 133", true},
		{"a policy rule is removed", nil, "rule del fwmark 1337 lookup 133 priority 133", true},
		{
			"a policy rule of IPv6 is added", nil,
			"-6 rule add fwmark 1337 lookup 133 priority 133", true,
		},
		{
			"a route in another table is added", nil, "route add local default dev lo table 133",
			true,
		},
		{
			"a route in another table is removed", nil, "route del local default dev lo table 133",
			true,
		},
		{
			"a route in a table with a large number is added", nil,
			"route add local default dev lo table 70000", true,
		},
		{"a route of IPv6 is added", nil, "-6 route add local default dev lo table 133", true},
		{"a route of the main table is added", nil, "route add blackhole 192.0.2.0/24", false},
		{"an address of IPv4 is added to lo", nil, "addr add 192.0.2.1/32 dev lo", false},
		{"an address of IPv6 is added to lo", nil, "addr add ::6/128 dev lo", false},
		{"an address of IPv6 is removed from lo", nil, "addr del ::6/128 dev lo", true},
		{
			"an address of another interface is removed",
			[]string{
				"link add name v0 type veth peer name v1", "link set v0 up",
				"addr add fd00::1/64 dev v0",
			},
			"addr del fd00::1/64 dev v0", false,
		},
		{
			"the last address of IPv4 is removed from lo, which removes its routes", nil,
			"addr del 192.0.2.1/32 dev lo", true,
		},
		{"lo goes down, which removes its IPv4 routes", nil, "link set lo down", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if len(row.before) > 0 {
				ip(t, pod, row.before...)
			}
			ip(t, pod, row.command)
			if !row.reported {
				checkNoEvent(t, w)
				return
			}
			if e := nextEvent(t, w); e.NS != pod.ID() || !e.Routes || e.Rules {
				t.Errorf("got %+v, want a change of routes in %s", e, pod)
			}
		})
	}
}

// TestALongMessageIsReported covers a process of the pod that adds alternative names to lo, so that
// the kernel's messages about lo are longer than the watcher's buffer.
func TestALongMessageIsReported(t *testing.T) {
	agent, pod := netnstest.New(t), netnstest.New(t)
	ip(t, pod, "link set lo up", "-6 addr flush dev lo")
	for i := range 100 {
		ip(t, pod, fmt.Sprintf("link property add dev lo altname %0120d", i))
	}
	w := open(t, agent)
	add(t, w, pod)
	ip(t, pod, "link set lo down")
	if e := nextEvent(t, w); e.NS != pod.ID() || !e.Routes || e.Lost {
		t.Errorf("got %+v, want a change of routes in %s", e, pod)
	}
}

func TestAnAddedNamespaceIsNotKeptAlive(t *testing.T) {
	agent := netnstest.New(t)
	w := open(t, agent)
	marker := netnstest.New(t)
	add(t, w, marker)
	pod, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	add(t, w, pod)
	checkReported(t, w, pod)
	if err := pod.Close(); err != nil {
		t.Fatal(err)
	}
	watch.WaitForNamespaceCount(t, w, 1)
	// The next namespace gets the id of the destroyed one.
	second := netnstest.New(t)
	add(t, w, second)
	checkReported(t, w, second)
}

func TestNextEndsWithTheContextAndOnClose(t *testing.T) {
	agent := netnstest.New(t)
	w := open(t, agent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	var other *watch.Watcher
	if err := agent.Do(func() (err error) { other, err = watch.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := other.Next(t.Context())
		ended <- err
	}()
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want %v", err, os.ErrClosed)
	}
}

func TestAddRejectsAClosedNamespace(t *testing.T) {
	w := open(t, netnstest.New(t))
	pod, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	_ = pod.Close()
	if err := w.Add(pod); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want %v", err, os.ErrClosed)
	}
}
