package rules_test

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

func ExampleCompile() {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.OutboundCIDRs.All = true
	r.OutboundExcludePorts, _ = rules.ParsePorts("5432, 8000:8999")
	if err := r.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(rules.Compile(r))
	// Output:
	// table inet sluice {
	// 	chain nat-prerouting {
	// 		type nat hook prerouting priority -110; policy accept;
	// 		meta nfproto ipv6 return comment "IPv6 is not captured"
	// 		tcp dport 15008 return comment "tunnel port"
	// 		meta l4proto tcp redirect to :15006 comment "inbound to the proxy"
	// 	}
	//
	// 	chain nat-output {
	// 		type nat hook output priority -110; policy accept;
	// 		meta nfproto ipv6 return comment "IPv6 is not captured"
	// 		tcp dport { 5432, 8000-8999 } return comment "excluded outbound port"
	// 		oifname "lo" jump nat-output-lo comment "over lo"
	// 		meta skuid 1337 return comment "from the proxy"
	// 		meta skgid 1337 return comment "from the proxy"
	// 		ip daddr 127.0.0.1 return comment "loopback"
	// 		meta l4proto tcp redirect to :15001 comment "outbound to the proxy"
	// 	}
	//
	// 	chain nat-output-lo {
	// 		ip saddr 127.0.0.6 accept comment "the proxy's connections to the application"
	// 		ip daddr 127.0.0.1 return comment "loopback"
	// 		tcp dport != 15008 meta skuid 1337 redirect to :15006 comment "the proxy calls its own pod"
	// 		accept comment "the application calls its own pod"
	// 	}
	// }
}

func ExampleRuleset_Explain() {
	r := rules.DefaultRedirect()
	r.OutboundCIDRs.All = true
	ruleset := rules.Compile(r)
	for _, text := range []string{
		"out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000",
		"out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1337",
	} {
		packet, err := rules.ParsePacket(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		trace := ruleset.Explain(packet)
		fmt.Println(packet)
		for _, step := range trace.Passes[0].Steps {
			fmt.Println("   ", step)
		}
		fmt.Println("   ", trace.Fate)
	}
	// Output:
	// out tcp 10.244.1.5:40000 > 10.96.0.1:443 dev eth0 uid 1000 gid 1000
	//     inet sluice nat-output #6: meta l4proto tcp redirect to :15001
	//     redirected to port 15001 of this host
	// out tcp 10.244.1.5:40000 > 10.96.0.1:443 dev eth0 uid 1337 gid 1337
	//     inet sluice nat-output #3: meta skuid 1337 return
	//     goes to its destination, not captured
}

func ExampleRedirect_Validate() {
	r := rules.DefaultRedirect()
	r.Mode = "tproxy"
	r.TunnelPort = 0
	fmt.Println(r.Validate())
	// Output:
	// Mode: "tproxy" is not allowed: want REDIRECT or TPROXY
	// TunnelPort: "0" is not allowed: want a port (1-65535)
}

func ExampleCompare() {
	r := rules.DefaultRedirect()
	r.OutboundCIDRs.All = true
	want := rules.Compile(r)
	r.OutboundExcludeCIDRs, _ = rules.ParsePrefixes("169.254.169.254/32")
	for _, difference := range rules.Compare(want, rules.Compile(r)) {
		fmt.Println(difference)
	}
	// Output:
	// extra in chain inet sluice nat-output: ip daddr 169.254.169.254 return
}

func ExampleParsePacket() {
	_, err := rules.ParsePacket("out tcp 10.244.1.5 > 10.96.0.1:443 uid root")
	fmt.Println(err)
	// Output:
	// packet "out tcp 10.244.1.5 > 10.96.0.1:443 uid root": source "10.244.1.5" is not an address and port, such as 10.1.2.3:80 or [fd00::1]:80
	// uid "root" is not a number from 0 to 4294967295, decimal or hexadecimal (0x539)
}
