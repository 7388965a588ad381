package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// excludedPort is the port whose outbound connections are not captured.
const excludedPort = 3306

// sidecar returns the redirection of a usual pod. It captures IPv4 and IPv6: inbound connections to
// all ports except the usual excluded ports, outbound connections to all ports except excludedPort,
// and all DNS queries.
func sidecar() rules.Redirect {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.InboundExcludePorts = rules.Singles[uint16](15020, 15021, 15090)
	r.OutboundCIDRs.All = true
	r.OutboundExcludePorts = rules.Singles[uint16](excludedPort)
	r.DNS = rules.DNS{Capture: true, All: true}
	r.IPv6 = true
	return r
}

// perform runs all parts of the demonstration.
func perform(p *printer) (err error) {
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		return err
	}
	closeNetwork := func() error { err := network.Close(); network = nil; return err }
	defer func() {
		if network != nil {
			err = errors.Join(err, closeNetwork())
		}
	}()
	if err := network.StartProxy(testbed.ProxyOptions{
		Owner: testbed.ProxyOwner, Forward: true,
	}); err != nil {
		return err
	}
	if err := network.StartApplication(testbed.ApplicationOwner); err != nil {
		return err
	}
	for _, part := range []func(*printer, *testbed.Network) error{
		applyRedirection, compareWithIstio, showCaptured, showNotCaptured, showTraced,
		changeUnderLoad, removeRedirection,
	} {
		if err := part(p, network); err != nil {
			return err
		}
	}
	remaining, err := mounts(network.Pod, network.Neighbor)
	if err = errors.Join(err, closeNetwork()); err != nil {
		return err
	}
	references, err := remainingReferences()
	remaining = append(remaining, references...)
	p.printResult(len(remaining) == 0,
		"the pod and the neighbor are gone: nothing on this host refers to them",
		fmt.Sprintf("nothing, found %q", remaining))
	return err
}

// applyRedirection applies the redirection and prints the rules that the kernel then contains.
func applyRedirection(p *printer, network *testbed.Network) error {
	rs := rules.MustCompile(sidecar())
	start := time.Now()
	result, err := nft.Apply(network.Pod, rs)
	elapsed := time.Since(start)
	if err != nil {
		return err
	}
	found, err := nft.Read(network.Pod)
	if err != nil {
		return err
	}
	p.printHeading("The redirection of the pod %s, %s: "+
		"%d rules in one transaction of %d bytes, %s in %.2f ms",
		testbed.PodIP4, testbed.PodIP6, result.Rules, result.Bytes, result.Outcome,
		milliseconds(elapsed))
	p.printRuleset(found.String())
	p.printResult(rules.Equal(rs, found), "read back from the kernel: exactly what was sent",
		fmt.Sprintf("no difference, found %s", rules.Compare(rs, found)))
	return network.WaitForRouting(rs.Routing)
}

// removeRedirection removes the redirection and shows that nothing of it is left.
func removeRedirection(p *printer, network *testbed.Network) error {
	p.printHeading("Everything removed")
	if _, err := nft.Remove(network.Pod); err != nil {
		return err
	}
	left, err := nft.ReadAll(network.Pod)
	if err != nil {
		return err
	}
	if err := showAll(p, network, rules.Ruleset{}, rowsAfterRemoval); err != nil {
		return err
	}
	p.printResult(len(left.Tables) == 0 && left.Routing.IsZero(),
		"no table, no policy route and no address of Sluice is left in the pod",
		fmt.Sprintf("nothing, found %s", left))
	return nil
}

// milliseconds returns the duration as a number of milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
