package matrix

import "github.com/sluice-mesh/sluice/e2e/istio"

// environment returns the environment variables that are parameters.
func environment() []parameter {
	return []parameter{
		{group: "environment", singleOnly: true, values: []value{
			together("ports", "~istio-inbound-ports", "~istio-local-exclude-ports",
				"ISTIO_INBOUND_PORTS=*", "ISTIO_LOCAL_EXCLUDE_PORTS=15020",
				"ISTIO_OUTBOUND_PORTS=80", "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE=443"),
			together("addresses", "~istio-service-cidr", "~istio-service-exclude-cidr",
				"ISTIO_SERVICE_CIDR=10.0.0.0/8",
				"ISTIO_SERVICE_EXCLUDE_CIDR=10.1.0.0/16"),
			together("proxy", "~proxy-uid", "~inbound-capture-port", "PROXY_UID=7", "PROXY_GID=8",
				"INBOUND_CAPTURE_PORT=9998",
				"INBOUND_TUNNEL_PORT=9997"),
			together("outbound port has no variable", "~envoy-port", "ENVOY_PORT=9999"),
			together("tproxy", "~istio-inbound-interception-mode",
				"ISTIO_INBOUND_INTERCEPTION_MODE=TPROXY",
				"ISTIO_INBOUND_TPROXY_MARK=7", "ISTIO_INBOUND_TPROXY_ROUTE_TABLE=8"),
			together("interfaces", "ISTIO_EXCLUDE_INTERFACES=net1", "KUBE_VIRT_INTERFACES=eth1"),
			together("dns", "REDIRECT_DNS=true", "CAPTURE_ALL_DNS=true"),
			together("dns by the agent's variable", "ISTIO_META_DNS_CAPTURE=true"),
			together("agent's variable disables dns", "REDIRECT_DNS=true",
				"ISTIO_META_DNS_CAPTURE=false"),
			together("agent's variable enables dns", "REDIRECT_DNS=false",
				"ISTIO_META_DNS_CAPTURE=1"),
			together("drop-invalid", "DROP_INVALID=true"),
			together("old variable of drop-invalid", "INVALID_DROP=true"),
			together("flag overrides variable", "istio-inbound-ports=80", "ISTIO_INBOUND_PORTS=*",
				"redirect-dns=false", "REDIRECT_DNS=true"),
			together("empty lists", "~istio-inbound-ports", "~istio-service-cidr",
				"ISTIO_INBOUND_PORTS=", "ISTIO_SERVICE_CIDR="),
		}},
		{group: "dual stack by environment", singleOnly: true, pods: []pod{unflagged}, values: []value{
			together("DUAL_STACK", "DUAL_STACK=true"),
			together("ISTIO_DUAL_STACK", "ISTIO_DUAL_STACK=true"),
			together("ISTIO_DUAL_STACK overrides", "DUAL_STACK=true", "ISTIO_DUAL_STACK=false"),
			together("flag overrides variable", "dual-stack", "DUAL_STACK=false"),
		}},
	}
}

// actions returns the flags and variables that select an action and do not change the rules.
func actions() []parameter {
	return []parameter{
		{group: "no effect", singleOnly: true, values: []value{
			together("probe", "iptables-probe-port=15003", "probe-timeout=1s"),
			together("reconcile", "reconcile"),
			together("force-apply", "force-apply"),
			together("namespace", "network-namespace=/proc/self/ns/net"),
			together("mode of the CNI plugin", "cni-mode"),
		}},
		{
			group: "idle", singleOnly: true, idle: true, pods: []pod{dual}, modes: bothModes,
			values: []value{
				together("dry run", "dry-run"), together("skipped apply", "skip-rule-apply"),
				together("removal", "cleanup-only"),
				together("dry run by environment", "DRY_RUN=true"),
				together("removal by environment", "CLEANUP_ONLY=true"),
			},
		},
	}
}

// refused returns values that istio-iptables or Sluice rejects.
func refused() []parameter {
	both := &istio.Refusal{ByIstio: true, BySluice: true, Reason: "invalid for both"}
	istioOnly := func(reason string) *istio.Refusal {
		return &istio.Refusal{ByIstio: true, Reason: reason}
	}
	sluiceOnly := func(reason string) *istio.Refusal {
		return &istio.Refusal{BySluice: true, Reason: reason}
	}
	refuse := func(r *istio.Refusal, values ...value) []value {
		for i := range values {
			values[i].refused = r
		}
		return values
	}
	return []parameter{
		{group: "refused", singleOnly: true, values: refuse(both,
			together("address without length", "istio-service-exclude-cidr=10.0.0.0"),
			together("address with blank", "istio-service-cidr=10.0.0.0/8 10.1.0.0/16"),
			together("all excluded", "istio-service-exclude-cidr=*"),
			together("word for a port", "istio-local-exclude-ports=notaport"),
			together("port above 65535", "istio-local-outbound-ports-exclude=70000"),
			together("foreign loopback", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=10.0.0.1/32"),
			together("wide loopback", "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=127.0.0.0/7"),
			together("kind of binary", "force-iptables-binary=foo"),
			together("unknown user", "proxy-uid=nosuchuser"),
			together("unknown group", "ISTIO_OUTBOUND_OWNER_GROUPS=nosuchgroup"),
			together("long interface", "istio-exclude-interfaces=interface-name-too-long"),
			together("removed flag", "iptables-trace-logging"),
			together("65 groups", setting("ISTIO_OUTBOUND_OWNER_GROUPS="+many(65, groupID))),
			together("word for a boolean", "redirect-dns=maybe"),
		)},
		{
			group: "refused by Istio", singleOnly: true,
			values: refuse(istioOnly("iptables accepts only a colon in port ranges"),
				together("range with a dash", "istio-local-exclude-ports=8000-9000,15020")),
		},
		{
			group: "refused by Istio for the mark", singleOnly: true, modes: []string{tproxy},
			values: refuse(
				istioOnly("iptables accepts a hexadecimal mark, "+
					"but Istio's code for routes does not"),
				together("hexadecimal", "istio-inbound-tproxy-mark=0x539")),
		},
		{group: "refused by Istio for the number", singleOnly: true, values: refuse(
			istioOnly("iptables allows 49 groups in a rule, Istio 64"),
			together("64 groups", setting("ISTIO_OUTBOUND_OWNER_GROUPS="+many(64, groupID))))},
		{group: "refused by Sluice for the mode", singleOnly: true, values: refuse(
			sluiceOnly("Istio treats every value other than TPROXY as REDIRECT"),
			together("lower case", "istio-inbound-interception-mode=tproxy"),
			together("none", "istio-inbound-interception-mode=NONE"))},
		{group: "refused by Sluice for the port", singleOnly: true, values: refuse(
			sluiceOnly("iptables accepts service names"),
			together("http", "envoy-port=http"))},
		{group: "refused by Sluice for a boolean", singleOnly: true, values: refuse(
			sluiceOnly("Istio treats an invalid variable as unset"),
			together("word", "DUAL_STACK=banana"))},
		{
			group: "refused by Sluice for the mark", singleOnly: true, modes: []string{tproxy},
			values: refuse(
				sluiceOnly("this mark identifies the proxy's connections to its own pod, "+
					"and cannot mark captured packets"),
				together("1338", "istio-inbound-tproxy-mark=1338")),
		},
		{
			group: "refused by Sluice for the table", singleOnly: true, modes: []string{tproxy},
			values: refuse(
				sluiceOnly("a local default route in the main table "+
					"would make all addresses local"),
				together("main", "istio-inbound-tproxy-route-table=254")),
		},
	}
}
