package nft_test

import (
	"fmt"

	"github.com/google/nftables"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// The example compiles the parameters of a redirection into a ruleset, and applies the ruleset
// twice to a network namespace. The second Apply changes nothing. netns.Open and netns.OpenPID open
// the namespace of a pod.
func Example() {
	ns, err := netns.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ns.Close()

	redirect := rules.DefaultRedirect()
	redirect.InboundPorts.All, redirect.OutboundCIDRs.All = true, true
	ruleset, err := rules.Compile(redirect)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		result, err := nft.Apply(ns, ruleset)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.Outcome)
	}
	// Output:
	// created
	// unchanged
}

// The example reads the ruleset of a namespace and compares it with the desired one.
func ExampleRead() {
	ns, err := netns.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ns.Close()

	redirect := rules.DefaultRedirect()
	redirect.OutboundCIDRs.All = true
	if _, err := nft.Apply(ns, rules.MustCompile(redirect)); err != nil {
		fmt.Println(err)
		return
	}
	live, err := nft.Read(ns)
	if err != nil {
		fmt.Println(err)
		return
	}
	redirect.OutboundExcludePorts, _ = rules.ParsePorts("5432")
	for _, difference := range rules.Compare(rules.MustCompile(redirect), live) {
		fmt.Println(difference)
	}
	// Output:
	// missing in chain inet sluice nat-output: tcp dport 5432 return
}

// The example adds a ruleset to a transaction that also adds a table of the caller.
func ExampleAddTo() {
	ns, err := netns.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ns.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		fmt.Println(err)
		return
	}

	conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "accounting"})
	redirect := rules.DefaultRedirect()
	redirect.OutboundCIDRs.All = true
	if err := nft.AddTo(conn, rules.MustCompile(redirect)); err != nil {
		fmt.Println(err)
		return
	}
	if err := conn.Flush(); err != nil {
		fmt.Println(err)
		return
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, table := range tables {
		fmt.Println(table.Name)
	}
	// Output:
	// accounting
	// sluice
}
