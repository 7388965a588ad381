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
	ruleset, err := rules.Compile(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(ruleset)
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
	want := rules.MustCompile(r)
	r.OutboundExcludeCIDRs, _ = rules.ParsePrefixes("169.254.169.254/32")
	for _, difference := range rules.Compare(want, rules.MustCompile(r)) {
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

// CompileAmbient compiles the redirection of a pod in ambient mode without IPv6, DNS and inbound
// capture.
func ExampleCompileAmbient() {
	a := rules.DefaultAmbient()
	a.IPv6, a.DNS, a.BypassInboundCapture = false, false, true
	ruleset, err := rules.CompileAmbient(a)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(ruleset)
	// Output:
	// table inet sluice {
	// 	chain mangle-prerouting {
	// 		type filter hook prerouting priority -160; policy accept;
	// 		meta nfproto ipv6 return comment "IPv6 is not captured"
	// 		meta mark & 0xfff == 0x539 ct mark set ct mark & 0xfffff000 ^ 0x111 comment "connections of ztunnel to the application"
	// 	}
	//
	// 	chain mangle-output {
	// 		type route hook output priority -160; policy accept;
	// 		meta nfproto ipv6 return comment "IPv6 is not captured"
	// 		ct mark & 0xfff == 0x111 meta mark set ct mark comment "replies to ztunnel"
	// 	}
	//
	// 	chain nat-output {
	// 		type nat hook output priority -110; policy accept;
	// 		meta nfproto ipv6 return comment "IPv6 is not captured"
	// 		ip daddr 169.254.7.127 meta l4proto tcp return comment "to the source of probes"
	// 		meta l4proto tcp meta mark & 0xfff == 0x111 return comment "marked for ztunnel"
	// 		oifname "lo" ip daddr != 127.0.0.1 return comment "of the pod to itself"
	// 		ip daddr != 127.0.0.1 meta l4proto tcp meta mark & 0xfff != 0x539 redirect to :15001 comment "outbound to ztunnel"
	// 	}
	// }
	// # ip -4 rule priority 133 fwmark 0x111/0xfff lookup 100; local default dev lo table 100
}
