package diff_test

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

func ExampleExplain() {
	r := rules.DefaultRedirect()
	r.OutboundCIDRs.All = true
	ruleset := rules.MustCompile(r)
	for _, text := range []string{
		"out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000",
		"out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1337",
	} {
		packet, err := rules.ParsePacket(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		trace := diff.Explain(&ruleset, packet)
		fmt.Println(packet)
		for _, step := range trace.Passes[0].Steps {
			fmt.Println("   ", step)
		}
		fmt.Println("   ", trace.Outcome)
	}
	// Output:
	// out tcp 10.244.1.5:40000 > 10.96.0.1:443 dev eth0 uid 1000 gid 1000
	//     inet sluice nat-output #6: meta l4proto tcp redirect to :15001
	//     redirected to port 15001 of this host
	// out tcp 10.244.1.5:40000 > 10.96.0.1:443 dev eth0 uid 1337 gid 1337
	//     inet sluice nat-output #3: meta skuid 1337 return
	//     goes to its destination, not captured
}

// Decide compares two rulesets for all packets at once. The result is a proof, with an example of
// each class of packets that the rulesets treat differently.
func ExampleDecide() {
	r := rules.DefaultRedirect()
	r.OutboundCIDRs.All = true
	left := rules.MustCompile(r)
	r.OutboundExcludePorts, _ = rules.ParsePorts("5432")
	right := rules.MustCompile(r)

	result := diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: right}, diff.Options{})
	fmt.Println(result.StrictVerdict())
	for _, class := range result.Classes {
		fmt.Println(class)
	}
	// Output:
	// different
	// hook output, family IPv4, protocol tcp, source not 127.0.0.6, destination not 127.0.0.1, destination port 5432, interface lo, user 1337, state new, related
	// 	example: out tcp 10.244.1.5:40000 > 10.244.1.5:5432 dev lo uid 1337 gid 1000
	// 	left:    redirected to port 15006 of this host, by inet sluice nat-output-lo #3: tcp dport != 15008 meta skuid 1337 redirect to :15006
	// 	right:   goes to its destination, not captured, by inet sluice nat-output #2: tcp dport 5432 return
	// hook output, family IPv4, protocol tcp, destination not 127.0.0.1, destination port 5432, interface not lo, user not 1337, group not 1337, state new, related
	// 	example: out tcp 10.244.1.5:40000 > 192.0.2.10:5432 dev eth0 uid 1000 gid 1000
	// 	left:    redirected to port 15001 of this host, by inet sluice nat-output #6: meta l4proto tcp redirect to :15001
	// 	right:   goes to its destination, not captured, by inet sluice nat-output #2: tcp dport 5432 return
}
