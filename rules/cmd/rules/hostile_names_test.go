package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// hostileName is a name that clears the terminal and forges a line of the output. The kernel
// accepts it for tables, chains and sets.
const hostileName = "a\x1b[2J\nforged"

// addHostileTables adds tables, chains and a set with hostile names, as a program with NET_ADMIN in
// the namespace can. Their rules make outbound connections to port 443 bypass the proxy, and refer
// to an expression without a model.
func addHostileTables(t *testing.T, ns *netns.NS) {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Name: hostileName, Family: nftables.TableFamilyINet})
	jumped := c.AddChain(&nftables.Chain{Name: hostileName + "2", Table: table})
	base := func(name string, hook *nftables.ChainHook, priority int) *nftables.Chain {
		return c.AddChain(&nftables.Chain{
			Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityRef(nftables.ChainPriority(priority)),
		})
	}
	output := base(hostileName, nftables.ChainHookOutput, -310)
	base(hostileName+"3", nftables.ChainHookForward, 0)
	set := &nftables.Set{
		Table: table, Name: hostileName, KeyType: nftables.TypeInetService, HasTimeout: true,
	}
	if err := c.AddSet(set, []nftables.SetElement{{Key: []byte{1, 187}}}); err != nil {
		t.Fatal(err)
	}
	port := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
	}
	c.AddRule(&nftables.Rule{Table: table, Chain: output, Exprs: append(port,
		&expr.Verdict{Kind: expr.VerdictJump, Chain: jumped.Name})})
	c.AddRule(&nftables.Rule{Table: table, Chain: jumped, Exprs: []expr.Any{&expr.Notrack{}}})
	received := base(hostileName+"4", nftables.ChainHookPrerouting, -310)
	c.AddRule(&nftables.Rule{Table: table, Chain: received, Exprs: []expr.Any{
		&expr.Verdict{Kind: expr.VerdictJump, Chain: jumped.Name},
	}})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestNamesInTheNamespaceArePrintable checks that names of foreign tables, chains and sets can
// neither control the terminal nor forge lines of the output. Names in JSON are exact.
func TestNamesInTheNamespaceArePrintable(t *testing.T) {
	ns := netnstest.NewPair(t).Pod
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD())
	capture := []string{"--netns", path, "-b", "*", "-i", "*", "-u", "1337", "--pod-ip", "10.244.1.5"}
	run := func(args ...string) (stdout, stderr string) {
		t.Helper()
		_, stdout, stderr = runCommand("", "", args...)
		return stdout, stderr
	}
	if _, stderr := run(slices.Concat([]string{"apply"}, capture)...); stderr != "" {
		t.Fatal(stderr)
	}
	addHostileTables(t, ns)
	expectPrintable := func(args ...string) {
		t.Helper()
		stdout, stderr := run(args...)
		if !strings.Contains(stdout, "forged") {
			t.Errorf("%v: the output does not contain the name:\n%s%s", args, stdout, stderr)
		}
		for line := range strings.Lines(stdout + stderr) {
			line = strings.Trim(line, "\t\n")
			if strings.HasPrefix(line, "forged") || strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%v prints %q, want the name as printable text", args, line)
			}
		}
	}
	const packet = "out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000"
	for _, args := range [][]string{
		{"show", "--netns", path, "--live"},
		{"show", "--netns", path, "--live", "--format", "nft"},
		{"explain", "--netns", path, "--live", packet},
		{"explain", "--netns", path, "--live", "in tcp 10.9.9.9:40000 > 10.244.1.5:443"},
		slices.Concat([]string{"check"}, capture),
		slices.Concat([]string{"doctor"}, capture),
		slices.Concat([]string{"diff"}, capture),
	} {
		expectPrintable(args...)
	}
	stdout, _ := run("show", "--netns", path, "--live", "-o", "json")
	if want := `"name": "a\u001b[2J\nforged2"`; !strings.Contains(stdout, want) {
		t.Errorf("JSON %s\nwant %s", stdout, want)
	}

	addHostileChain(t, ns)
	expectPrintable(slices.Concat([]string{"check"}, capture)...)
}

// addHostileChain adds a chain with a hostile name to Sluice's table.
func addHostileChain(t *testing.T, ns *netns.NS) {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	table := &nftables.Table{Name: rules.TableName, Family: nftables.TableFamilyINet}
	chain := c.AddChain(&nftables.Chain{Name: hostileName, Table: table})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Notrack{}}})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}
