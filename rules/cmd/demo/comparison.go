package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// istioLog is the log of istio-init (istio.io/istio v0.0.0-20260827124520-eed52ebb66ad,
// iptables-legacy 1.8.9) in a pod like the demonstration's, with the parameters of sidecar().
//
//go:embed istio-init.log
var istioLog string

// compareWithIstio decides whether the pod treats every packet as istio-init would, and shows that
// the comparison detects a changed parameter.
func compareWithIstio(p *printer, network *testbed.Network) error {
	p.printHeading(
		"The pod compared with istio-init's rules (from its log), for every possible packet")
	log, err := save.ParseIstioLog("istio-init.log", strings.NewReader(istioLog))
	if err != nil {
		return err
	}
	live, err := compat.ReadLive(network.Pod, compat.OriginAll)
	if err != nil {
		return err
	}
	istio := diff.Side{Ruleset: rules.Ruleset{Tables: log.Tables}}
	result := diff.Decide(diff.Side{Ruleset: live.Ruleset, RoutingKnown: true}, istio,
		diff.Options{})
	verdict := result.StrictVerdict()
	p.printResult(verdict == diff.Equivalent,
		"every packet has the same outcome: "+string(verdict), string(diff.Equivalent))

	changed := sidecar()
	changed.OutboundExcludePorts = rules.Singles[uint16](excludedPort + 1)
	result = diff.Decide(diff.Side{Ruleset: rules.MustCompile(changed)}, istio, diff.Options{})
	verdict = result.StrictVerdict()
	p.printResult(verdict == diff.Different,
		fmt.Sprintf("with port %d excluded instead of %d: %s; for example", excludedPort+1,
			excludedPort, verdict), string(diff.Different))
	for _, c := range result.Classes {
		if c.Witness.OutInterface == "lo" || c.Witness.Family() != rules.IPv4 {
			continue // print only IPv4 packets that do not stay in the pod
		}
		p.printLine("   %s", c.Witness)
		p.printLine("     then       %s", c.Outcome.Left.Outcome)
		p.printLine("     istio-init %s", c.Outcome.Right.Outcome)
	}
	return nil
}
