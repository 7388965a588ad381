package matrix

import (
	"slices"
	"strconv"
)

// parameters returns all parameters, grouped like istio-iptables' flags.
func parameters() []parameter {
	return slices.Concat(completeConfigurations(), proxy(), inbound(), outbound(), owners(),
		interfaces(), dns(), environment(), actions(), refused())
}

// completeConfigurations returns combinations of settings that real pods have.
func completeConfigurations() []parameter {
	return []parameter{
		{group: "usual", values: []value{together("injected")}, pods: everyPod, modes: bothModes},
		{
			group: "nothing",
			values: []value{together("no flag", "~envoy-port", "~inbound-capture-port",
				"~proxy-uid",
				"~istio-inbound-interception-mode", "~istio-service-cidr",
				"~istio-service-exclude-cidr", "~istio-inbound-ports",
				"~istio-local-exclude-ports")}, pods: everyPod,
		},
		{
			group: "cni",
			values: []value{together("plugin", "istio-local-exclude-ports=15020,15021,15090",
				"istio-local-outbound-ports-exclude=15020", "proxy-gid=1337", "redirect-dns",
				"capture-all-dns")},
			pods: everyPod, modes: bothModes,
		},
		{
			group: "everything",
			values: []value{together("all", "istio-service-cidr=10.0.0.0/8,fd00:10:96::/112",
				"istio-service-exclude-cidr=10.9.0.0/16,fd00:9::/64", "istio-outbound-ports=443",
				"istio-local-outbound-ports-exclude=5432", "kube-virt-interfaces=eth1",
				"istio-exclude-interfaces=net1", "drop-invalid",
				"redirect-dns", "capture-all-dns",
				"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=202")}, pods: everyPod, modes: bothModes,
		},
	}
}

// proxy returns the parameters that describe the proxy and how packets reach it.
func proxy() []parameter {
	return []parameter{
		{group: "envoy-port", values: each("envoy-port", "1", "12345", "65535")},
		{
			group:  "inbound-capture-port",
			values: each("inbound-capture-port", "1", "12346", "65535"), modes: bothModes,
		},
		{
			group: "inbound-tunnel-port", values: each("inbound-tunnel-port", "53", "80", "12347"),
			pods: []pod{dual}, modes: bothModes,
		},
		{group: "inbound-tunnel-port with dns", values: []value{
			together("53", "inbound-tunnel-port=53", "redirect-dns"),
			together("12347", "inbound-tunnel-port=12347", "redirect-dns"),
		}},
		{
			group: "proxy-uid",
			values: each("proxy-uid", "0", "1337,1338", "3,4,5", "daemon", "1000-1999",
				"4294967294"),
			modes: bothModes,
		},
		{
			group:  "proxy-gid",
			values: each("proxy-gid", "0", "1337,1339", "1,2,3", "daemon", "4294967294"),
			modes:  bothModes,
		},
		{group: "proxy ids", values: []value{
			together("root with group 1337", "proxy-uid=0", "proxy-gid=1337"),
			together("two of each with dns", "proxy-uid=3,4", "proxy-gid=1,2", "redirect-dns"),
			together("loopback included", "proxy-uid=3,4", "proxy-gid=1,2",
				"istio-service-cidr=127.0.0.0/8,10.0.0.0/8"),
			together("loopback included with dns", "proxy-uid=3,4", "proxy-gid=1,2",
				"istio-service-cidr=127.0.0.0/8", "redirect-dns"),
		}, pods: []pod{v6, dual}, modes: bothModes},
		{group: "envoy user", values: []value{
			together("daemon", "~proxy-uid", "ENVOY_USER=daemon"),
			together("unknown", "~proxy-uid", "ENVOY_USER=nosuchuser"),
		}},
		{
			group:  "tproxy-mark",
			values: each("istio-inbound-tproxy-mark", "1", "65536", "4294967295"),
			pods:   []pod{dual},
			modes:  []string{tproxy},
		},
		{
			group:  "tproxy-route-table",
			values: each("istio-inbound-tproxy-route-table", "1", "252", "1000"), pods: []pod{dual},
			modes: []string{tproxy},
		},
		{
			group: "tproxy parameters without tproxy",
			values: []value{together("mark and table", "istio-inbound-tproxy-mark=7",
				"istio-inbound-tproxy-route-table=7")},
		},
	}
}

// inbound returns the parameters of inbound connections.
func inbound() []parameter {
	return []parameter{
		{
			group: "inbound-ports",
			values: each("istio-inbound-ports", "", "80", "80,443,8080", "1:1024,8000:9000",
				"65535", "15008,80",
				"15006,15001", "80,80,443"), pods: []pod{v4, dual}, modes: bothModes,
		},
		{
			group: "local-exclude-ports",
			values: each("istio-local-exclude-ports", "", "22", "15090, 15021", "8000:9000,15020",
				"15020,15020", "1:65535", "15008"), modes: bothModes,
		},
		{
			group: "local-exclude-ports of a list",
			values: []value{together("ignored", "istio-inbound-ports=80,443",
				"istio-local-exclude-ports=443,15020")}, modes: bothModes,
		},
		{
			group: "local-exclude-ports in number",
			values: []value{together("50", setting("istio-local-exclude-ports="+
				many(50, func(i int) string {
					return strconv.Itoa(2000 + 7*i)
				})))}, pods: []pod{dual}, modes: bothModes,
		},
	}
}

// outbound returns the parameters of outbound connections.
func outbound() []parameter {
	return []parameter{
		{
			group: "service-cidr",
			values: each("istio-service-cidr", "", "10.0.0.0/8",
				"10.0.0.0/8,172.16.0.0/12,fd00:10:96::/112",
				"0.0.0.0/0", "::/0", "10.1.2.3/8", "10.0.0.0/8,10.1.0.0/16",
				"127.0.0.0/8,10.0.0.0/8", "::1/128", "127.0.0.1/32",
				"192.0.2.1/32,2001:db8::1/128", "::ffff:10.0.0.0/104"), pods: everyPod,
		},
		{
			group: "service-exclude-cidr",
			values: each("istio-service-exclude-cidr",
				"169.254.169.254/32,fd00:ec2::254/128,10.10.0.0/16",
				"0.0.0.0/0", "10.1.2.3/8", "127.0.0.0/8", "fd00::/8",
				"::ffff:10.0.0.0/104"), pods: everyPod,
		},
		{group: "prefixes in number", values: []value{
			together("200 excluded", setting("istio-service-exclude-cidr="+many(200, prefix4)+","+
				many(200, prefix6))),
			together("200 included", setting("istio-service-cidr="+many(200, prefix4)+","+
				many(200, prefix6))),
		}, pods: []pod{dual}},
		{
			group: "outbound-ports",
			values: slices.Concat(each("istio-outbound-ports", "80", "443,8443",
				"1000:2000"), []value{
				together("no address captured", "istio-service-cidr=",
					"istio-outbound-ports=80,443"),
				together("with captured addresses", "istio-service-cidr=10.0.0.0/8",
					"istio-outbound-ports=8443",
					"istio-local-outbound-ports-exclude=5432"),
				together("with excluded addresses", "istio-service-cidr=",
					"istio-service-exclude-cidr=10.0.0.0/8", "istio-outbound-ports=8443"),
			}), pods: []pod{v4, dual, unflagged},
		},
		{group: "local-outbound-ports-exclude", values: slices.Concat(
			each("istio-local-outbound-ports-exclude", "5432", "443, 3306", "9000:9100", "53",
				"15008"), []value{
				together("dns excluded", "istio-local-outbound-ports-exclude=53", "redirect-dns",
					"capture-all-dns"),
				together("more than dns excluded", "istio-local-outbound-ports-exclude=50:60",
					"redirect-dns"),
				together("included and excluded", "istio-local-outbound-ports-exclude=443",
					"istio-outbound-ports=443"),
			}), pods: []pod{v4, dual}},
		{group: "loopback-cidr", values: slices.Concat(each("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
			"127.0.0.1/8", "127.0.0.0/8", "127.0.0.1/16", "127.5.5.5/32", "127.0.0.6/32"), []value{
			together("with dns", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=127.0.0.1/8", "redirect-dns",
				"capture-all-dns"),
			together("loopback included", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=127.0.0.1/16",
				"istio-service-cidr=127.0.0.0/8"),
		}), pods: []pod{v4, dual}, modes: bothModes},
	}
}

// owners returns the parameters of the groups whose connections are captured or excluded.
func owners() []parameter {
	return []parameter{
		{
			group: "owner-groups",
			values: each("ISTIO_OUTBOUND_OWNER_GROUPS", "", "202", "202,203", "daemon,202", "0",
				"1337", "*"),
			pods: []pod{v4, dual},
		},
		{
			group: "owner-groups in number",
			values: []value{together("40", setting("ISTIO_OUTBOUND_OWNER_GROUPS="+
				many(40, groupID)))},
		},
		{group: "owner-groups with dns", values: []value{
			together("included", "ISTIO_OUTBOUND_OWNER_GROUPS=202,203", "redirect-dns",
				"capture-all-dns"),
			together("excluded", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=202,203", "redirect-dns"),
			together("none", "ISTIO_OUTBOUND_OWNER_GROUPS=", "redirect-dns"),
		}, pods: []pod{v4, dual}},
		{
			group: "owner-groups and loopback",
			values: []value{together("included", "ISTIO_OUTBOUND_OWNER_GROUPS=202",
				"istio-service-cidr=127.0.0.0/8,10.0.0.0/8")},
		},
		{
			group: "owner-groups-exclude",
			values: slices.Concat(each("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "202", "202,203",
				"daemon"),
				[]value{together("ignored with included groups", "ISTIO_OUTBOUND_OWNER_GROUPS=202",
					"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=202")}),
			pods: []pod{v4, dual},
		},
	}
}

// interfaces returns the parameters of interfaces, and the parameter for invalid packets.
func interfaces() []parameter {
	return []parameter{
		{
			group: "exclude-interfaces",
			values: each("istio-exclude-interfaces", "net1", "net1,net2", "net1, net2", "eth0",
				"lo"),
			pods: []pod{v4, dual}, modes: bothModes,
		},
		{group: "exclude-interfaces with others", values: []value{
			together("drop-invalid", "istio-exclude-interfaces=net1", "drop-invalid"),
			together("dns", "istio-exclude-interfaces=net1", "redirect-dns"),
		}, modes: bothModes},
		{
			group: "kube-virt-interfaces",
			values: slices.Concat(each("kube-virt-interfaces", "eth1", "eth1,eth2",
				"eth1, eth2"), []value{
				together("with captured addresses", "kube-virt-interfaces=eth1,eth2",
					"istio-service-cidr=10.0.0.0/8,172.16.0.0/12,fd00:10:96::/112"),
				together("no address captured", "kube-virt-interfaces=eth1", "istio-service-cidr="),
				together("with exclusions", "kube-virt-interfaces=eth1",
					"istio-service-exclude-cidr=10.9.0.0/16",
					"istio-local-outbound-ports-exclude=443"),
				together("another interface excluded", "kube-virt-interfaces=eth1",
					"istio-exclude-interfaces=net1"),
				together("the same interface excluded", "kube-virt-interfaces=eth1",
					"istio-exclude-interfaces=eth1"),
				together("no inbound port captured", "kube-virt-interfaces=eth1",
					"istio-inbound-ports="),
			}), pods: []pod{v4, dual, unflagged}, modes: bothModes,
		},
		{group: "interface patterns", values: []value{
			together("excluded", "istio-exclude-interfaces=net+"),
			together("rerouted", "kube-virt-interfaces=tap+,vnet+"),
		}, modes: bothModes},
		{
			group: "drop-invalid", values: []value{together("set", "drop-invalid")}, pods: everyPod,
			modes: bothModes,
		},
	}
}

// dns returns the parameters of DNS capture.
func dns() []parameter {
	resolvers := func(name string, servers ...string) value {
		v := value{name: name, settings: []setting{"redirect-dns"}, resolvConf: "options ndots:5\n"}
		for _, s := range servers {
			v.resolvConf += "nameserver " + s + "\n"
		}
		return v
	}
	return []parameter{
		{group: "redirect-dns", values: []value{
			resolvers("one server", "10.96.0.10"),
			resolvers("servers of both families", "10.96.0.10", "fd00:10:96::a"),
			resolvers("no server"), resolvers("IPv6 server", "fd00:10:96::a"),
			resolvers("server on localhost", "127.0.0.53"),
		}, pods: everyPod, modes: bothModes},
		{group: "resolv.conf", values: []value{
			resolvers("four servers", "10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.13"),
			resolvers("the same server twice", "10.96.0.10", "10.96.0.10"),
			resolvers("IPv6 server with a zone", "10.96.0.10", "fe80::1%eth0"),
			resolvers("IPv6 loopback", "::1"),
			resolvers("127.0.0.1", "127.0.0.1"),
			{
				name: "comments", settings: []setting{"redirect-dns"},
				resolvConf: "# nameserver 10.0.0.1\n; x\n  nameserver\t10.0.0.2 \n" +
					"nameserver\nsearch nameserver\n",
			},
			{
				name: "no newline", settings: []setting{"redirect-dns"},
				resolvConf: "nameserver 10.0.0.3",
			},
		}, pods: []pod{v4, dual}},
		{group: "capture-all-dns", values: []value{
			together("set", "redirect-dns", "capture-all-dns"),
			together("alone", "capture-all-dns"),
		}, pods: everyPod, modes: bothModes},
		{group: "dns and loopback", values: []value{
			together("loopback included", "istio-service-cidr=127.0.0.0/8,10.0.0.0/8",
				"redirect-dns"),
			together("loopback included and all dns captured",
				"istio-service-cidr=127.0.0.0/8,10.0.0.0/8", "redirect-dns", "capture-all-dns"),
			together("IPv6 loopback included", "istio-service-cidr=::1/128", "redirect-dns",
				"capture-all-dns"),
		}, pods: []pod{v4, dual}},
	}
}
