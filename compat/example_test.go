package compat_test

import (
	"fmt"
	"os"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Choose returns a backend that programs nf_tables, or iptables-legacy if the kernel has no
// nf_tables.
func ExampleChoose() {
	ns, err := netns.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ns.Close()

	redirect := rules.DefaultRedirect()
	redirect.InboundPorts.All = true
	ruleset, err := rules.Compile(redirect)
	if err != nil {
		fmt.Println(err)
		return
	}
	backend, err := compat.Choose(compat.BackendAuto)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := backend.Apply(ns, ruleset, compat.Snapshot{}); err != nil {
		fmt.Println(err)
		return
	}
	found, err := backend.Check(ns, ruleset, compat.Snapshot{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(found.Differences), "differences")
	// Output:
	// 0 differences
}

// ReadLive reads all rules of a running pod into the model, where diff.Explain follows a packet.
func ExampleReadLive() {
	ns, err := netns.OpenPID(os.Getpid()) // a process of the pod
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ns.Close()
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		fmt.Println(err)
		return
	}
	packet, err := rules.ParsePacket("out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(diff.Explain(&live.Ruleset, packet).Outcome)
}

// The log of an istio-init container contains its parameters and the resulting rules. diff.Decide
// compares these rules with the ruleset that rules.Compile generates from the parameters.
func Example_istioLog() {
	file, err := os.Open("save/testdata/applied.log")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	log, err := save.ParseIstioLog(file.Name(), file)
	if err != nil {
		fmt.Println(err)
		return
	}
	if log.Redirect == nil {
		fmt.Println(log.NoRedirect)
		return
	}
	fmt.Println(log.Redirect.Mode, log.Redirect.OutboundPorts)
	for _, table := range log.Tables {
		fmt.Println(table.Family, table.Name)
	}
	// Output:
	// TPROXY [443]
	// ip nat
	// ip6 nat
}
