// Command facts prints the features of the kernel that rules and diagnostics can use, as the JSON
// of kernels.Facts.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

func main() {
	facts, err := kernelFacts()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(facts)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "facts: %v\n", err)
		os.Exit(1)
	}
}

// kernelFacts returns the facts of the running kernel.
func kernelFacts() (kernels.Facts, error) {
	var facts kernels.Facts
	features, err := nft.Probe()
	if err != nil {
		return facts, err
	}
	facts.MissingNFT = missing(features)
	if features, err = compat.ProbeLegacy(fullRuleset()); err != nil {
		return facts, err
	}
	facts.MissingLegacy = missing(features)
	_, err = nft.Hooks(nil)
	if err != nil && !nft.IsNotSupported(err) {
		return facts, err
	}
	facts.Hooks = err == nil
	facts.Destroy = destroyMissingTable() == nil
	return facts, nil
}

// missing returns the names of the features that the kernel does not have.
func missing(features []nft.Support) []string {
	var names []string
	for _, f := range features {
		if f.Err != nil {
			names = append(names, f.Feature.Name)
		}
	}
	return names
}

// fullRuleset returns a ruleset with all features that the rules of a pod can need.
func fullRuleset() rules.Ruleset {
	r := rules.DefaultRedirect()
	r.Mode = rules.ModeTProxy
	r.IPv6, r.DropInvalid = true, true
	r.DNS = rules.DNS{Capture: true, All: true}
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	r.OutboundExcludeCIDRs = []netip.Prefix{
		netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/64"),
	}
	r.OutboundExcludePorts = rules.Singles[uint16](5432, 9000)
	return rules.MustCompile(r)
}

// destroyMissingTable deletes a nonexistent table with NFT_MSG_DESTROYTABLE. It succeeds on kernels
// that support this message.
func destroyMissingTable() (err error) {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.CloseLasting()) }()
	c.DestroyTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "not-there"})
	return c.Flush()
}
