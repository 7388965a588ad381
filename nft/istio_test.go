package nft

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestRemoveIstioKeepsForeignObjects(t *testing.T) {
	for _, c := range istiotest.Cases(t, istiotest.NFT) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			ns := istiotest.Load(t, istiotest.NFT, c)
			removed, err := RemoveIstio(ns)
			if err != nil {
				t.Fatal(err)
			}
			want := istiotest.Remaining(t, istiotest.NFT, c)
			if diff := cmp.Diff(want, istiotest.Dump(t, ns, istiotest.NFT)); diff != "" {
				t.Errorf("remaining rules (-want +got):\n%s\nremoved:\n%s", diff, strings.Join(removed, "\n"))
			}
			if installed := strings.Contains(c.IPv4+c.IPv6, ":ISTIO_") ||
				c.Tables != ""; installed != (len(removed) > 0) {
				t.Errorf("removed %q, had rules of Istio: %t, want objects only if true",
					removed, installed)
			}
			checkNoIstio(t, ns)
		})
	}
}

// checkNoIstio checks that RemoveIstio finds no rules of Istio and does not change the ruleset.
func checkNoIstio(t *testing.T, ns *netns.NS) {
	t.Helper()
	before := generationOf(t, ns)
	if removed, err := RemoveIstio(ns); err != nil || len(removed) > 0 {
		t.Errorf("removed %q, error %v, want nothing removed", removed, err)
	}
	if after := generationOf(t, ns); after != before {
		t.Errorf("the generation changed from %d to %d, want no change", before, after)
	}
}

func TestRemoveIstioWithoutRulesOfIstio(t *testing.T) {
	ns := netnstest.New(t)
	checkNoIstio(t, ns)
	// Tables with other names or families, and chains with other names, are not Istio's.
	istiotest.Run(t, ns, `
add table ip istio-proxy-nat
add table ip istio-ambient-nat
add table inet nat
add chain inet nat ISTIO_OUTPUT
add table ip security
add chain ip security ISTIO_OUTPUT
add table ip nat
add chain ip nat ISTIOD
add chain ip nat ISTIO_BASE { type filter hook input priority 0; }
add rule ip nat ISTIO_BASE jump ISTIOD
`, "nft", "-f", "-")
	checkNoIstio(t, ns)
}

func TestRemoveIstioReportsWhatItRemoved(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Run(t, ns, "add table inet istio-proxy-raw; add table inet istio-ambient-nat", "nft", "-f", "-")
	istiotest.Restore(t, ns, istiotest.NFT, rules.IPv6, `*nat
:OTHERS - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A OUTPUT -o net1 -j RETURN
-A OUTPUT -j ISTIO_OUTPUT
-A PREROUTING -i net1 -j RETURN
-A OTHERS -p udp -m udp --dport 53 -j RETURN
-A OTHERS -p tcp -m tcp --dport 80 -g ISTIO_REDIRECT
-A ISTIO_OUTPUT -p tcp -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_REDIRECT -j RETURN
COMMIT
`)
	removed, err := RemoveIstio(ns)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"table inet istio-proxy-raw",
		"table inet istio-ambient-nat",
		`rule ip6 nat PREROUTING: iifname "net1" return`,
		`rule ip6 nat OUTPUT: oifname "net1" return`,
		"rule ip6 nat OUTPUT: jump ISTIO_OUTPUT",
		"rule ip6 nat OTHERS: tcp dport 80 goto ISTIO_REDIRECT",
		"chain ip6 nat ISTIO_OUTPUT (1 rule)",
		"chain ip6 nat ISTIO_REDIRECT (2 rules)",
	}
	if diff := cmp.Diff(want, removed, cmp.Transformer("sorted", lineSet)); diff != "" {
		t.Errorf("removed objects (-want +got):\n%s", diff)
	}
	remaining := istiotest.Save(t, ns, istiotest.NFT, rules.IPv6)
	if !strings.Contains(remaining, "[0:0] -A OTHERS -p udp -m udp --dport 53 -j RETURN\nCOMMIT") {
		t.Errorf("the foreign rule for UDP is not the last rule that remains:\n%s", remaining)
	}
}

// lineSet returns the set of the lines. Their order is not compared, because iptables-nft creates
// chains in any order.
func lineSet(lines []string) map[string]bool {
	set := map[string]bool{}
	for _, l := range lines {
		set[l] = true
	}
	return set
}

// TestRemoveIstioRemovesAllOrNothing adds a reference that iptables cannot create. The reference
// prevents the deletion of a chain.
func TestRemoveIstioRemovesAllOrNothing(t *testing.T) {
	c := istiotest.Cases(t, istiotest.NFT)[0]
	ns := istiotest.Load(t, istiotest.NFT, c)
	istiotest.Run(t, ns, "add rule ip nat PORTMAP tcp dport vmap { 81 : jump ISTIO_REDIRECT }",
		"nft", "-f", "-")
	before := istiotest.Run(t, ns, "", "nft", "list", "ruleset")
	removed, err := RemoveIstio(ns)
	if !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), "delete chain ip nat ISTIO_REDIRECT") || len(removed) > 0 {
		t.Errorf("removed %q, error %v, want nothing removed and an error that names "+
			"ISTIO_REDIRECT", removed, err)
	}
	if diff := cmp.Diff(before, istiotest.Run(t, ns, "", "nft", "list", "ruleset")); diff != "" {
		t.Errorf("ruleset (-before +after):\n%s", diff)
	}
}

// TestRemoveIstioRetriesAfterAConcurrentChange checks that the kernel rejects the transaction if a
// rule was added after the read, with an error after which RemoveIstio retries.
func TestRemoveIstioRetriesAfterAConcurrentChange(t *testing.T) {
	ns := istiotest.Load(t, istiotest.NFT, istiotest.Cases(t, istiotest.NFT)[0])
	err := ns.DoNamed(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		found, err := c.findIstio()
		if err != nil || found.IsZero() {
			t.Fatalf("found %v, error %v, want objects of Istio", found, err)
		}
		istiotest.Run(t, nil, "add rule ip nat ISTIO_OUTPUT counter", "nft", "-f", "-")
		return c.commit(found.encode())
	})
	if !errors.Is(err, unix.ERESTART) || !needsRetry(err) {
		t.Errorf("error %v, retried: %t, want a retry after %v", err, needsRetry(err),
			unix.ERESTART)
	}
}

func TestRemoveIstioDuringConcurrentWrites(t *testing.T) {
	c := istiotest.Cases(t, istiotest.NFT)[0]
	ns := istiotest.Load(t, istiotest.NFT, c)
	var wg sync.WaitGroup
	var removers atomic.Int32
	for range 4 {
		wg.Go(func() {
			removed, err := RemoveIstio(ns)
			if err != nil {
				t.Error(err)
			}
			if len(removed) > 0 {
				removers.Add(1)
			}
		})
	}
	const added = "add rule ip nat PORTMAP tcp dport 82 counter return"
	for range 20 {
		istiotest.Run(t, ns, added, "nft", "-f", "-")
	}
	wg.Wait()
	if n := removers.Load(); n != 1 {
		t.Errorf("%d calls report the removal, want 1", n)
	}
	remaining := istiotest.Run(t, ns, "", "nft", "list", "ruleset")
	if n := strings.Count(remaining, "tcp dport 82 counter"); n != 20 ||
		strings.Contains(remaining, "ISTIO_REDIRECT") {
		t.Errorf("%d of 20 foreign rules remain, want all and no rules of Istio:\n%s", n, remaining)
	}
	checkNoIstio(t, ns)
}

func TestRemoveIstioInAnotherUserNamespace(t *testing.T) {
	ns := netnstest.NewInUserNS(t)
	c := istiotest.Cases(t, istiotest.NFT)[0]
	istiotest.Run(t, ns, c.Tables, "nft", "-f", "-")
	removed, err := RemoveIstio(ns)
	if err != nil || len(removed) != 3 {
		t.Errorf("removed %q, error %v, want the 3 tables of istio-nftables", removed, err)
	}
}

func TestRemoveIstioLeaksNothing(t *testing.T) {
	ns := netnstest.New(t)
	round := func() {
		istiotest.Restore(t, ns, istiotest.NFT, rules.IPv4,
			"*nat\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -j ISTIO_OUTPUT\nCOMMIT\n")
		if removed, err := RemoveIstio(ns); err != nil || len(removed) != 2 {
			t.Fatalf("removed %q, error %v, want 2 objects: a rule and a chain", removed, err)
		}
	}
	round() // the first round starts the runtime's poller
	before := netnstest.Descriptors(t)
	for range 20 {
		round()
	}
	// Sockets are closed asynchronously.
	rulestest.EventuallySucceeds(t, "release of the descriptors", func() error {
		if after := netnstest.Descriptors(t); after > before {
			return fmt.Errorf("%d descriptors before, %d after", before, after)
		}
		return nil
	})
}
