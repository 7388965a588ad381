package nft

import (
	"strings"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// openLibrary opens a connection of google/nftables to the namespace.
func openLibrary(t testing.TB, ns *netns.NS) *nftables.Conn {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReadReturnsARulesetThatALibraryTransactionCreated(t *testing.T) {
	t.Parallel()
	rulesets := map[string]rules.Ruleset{"20000 prefixes of each family": manyPrefixes(0, 20000)}
	for _, e := range examples {
		rulesets[e.name] = compileWith(e.change)
	}
	for name, want := range rulesets {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			c := openLibrary(t, ns)
			if err := AddTo(c, want); err != nil {
				t.Fatal(err)
			}
			checkEmpty(t, ns)
			if err := c.Flush(); err != nil {
				t.Fatal(err)
			}
			if _, err := route.Ensure(ns, want.Routing); err != nil {
				t.Fatal(err)
			}
			checkRuleset(t, ns, want)
			mustApply(t, ns, want, Unchanged)
		})
	}
}

func TestReadReturnsAnyRulesetThatALibraryTransactionCreated(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		want := rules.MustCompile(redirects.Draw(t, "redirect"))
		want.Routing = rules.Routing{}
		c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
		if err != nil {
			t.Fatal(err)
		}
		if err := AddTo(c, want); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		checkRuleset(t, ns, want)
		if _, err := Remove(ns); err != nil {
			t.Fatal(err)
		}
	})
}

func TestARulesetIsCommittedTogetherWithTheRestOfTheTransaction(t *testing.T) {
	ns := netnstest.New(t)
	want := example("sidecar-ipv4")
	transaction := func(name string) error {
		c := openLibrary(t, ns)
		c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
		if err := AddTo(c, want); err != nil {
			t.Fatal(err)
		}
		return c.Flush()
	}
	if err := transaction("first"); err != nil {
		t.Fatal(err)
	}
	checkRuleset(t, ns, want)
	if err := transaction("second"); err == nil {
		t.Error("the second transaction succeeded, want an error because the table sluice exists")
	}
	if got := tableNames(t, ns); got != "first sluice" {
		t.Errorf("the namespace has the tables %q, want %q", got, "first sluice")
	}
}

func TestUnsupportedRuleLeavesTheLibraryTransactionUnchanged(t *testing.T) {
	ns := netnstest.New(t)
	c := openLibrary(t, ns)
	c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "other"})
	err := AddTo(c, rules.Ruleset{Tables: []rules.Table{
		{Name: "good"},
		{Name: "bad", Chains: []rules.Chain{
			{Name: "c", Rules: []rules.Rule{action(rules.TProxyDrop{})}},
		}},
	}})
	if err == nil || !strings.Contains(err.Error(), "inet bad c #1") {
		t.Errorf("error %v, want an error that contains \"inet bad c #1\"", err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := tableNames(t, ns); got != "other" {
		t.Errorf("the namespace has the tables %q, want only %q", got, "other")
	}
}

// tableNames returns the names of the inet tables of a namespace, separated by spaces.
func tableNames(t *testing.T, ns *netns.NS) string {
	t.Helper()
	tables, err := openLibrary(t, ns).ListTablesOfFamily(unix.NFPROTO_INET)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	return strings.Join(names, " ")
}
