package settings

// ambientSettings are the settings of ambient mode, with the names of Istio's variables.
var ambientSettings = []Setting{
	ofPlugin("ambient_enabled", Setting{
		Env: "AMBIENT_ENABLED", Helm: "ambient.enabled", Kind: Bool, Example: "true",
	}),
	ofPlugin("ambient_enablement_selectors", Setting{
		Env: "AMBIENT_ENABLEMENT_SELECTOR", Helm: "ambient.enablementSelectors", Kind: JSONList,
		Example: `[{"podSelector":{"matchLabels":{"mesh":"on"}}}]`,
	}),
	ofPlugin("ambient_dns_capture", Setting{
		Env: "AMBIENT_DNS_CAPTURE", Helm: "ambient.dnsCapture", Kind: Bool, Example: "false",
	}),
	ofPlugin("ambient_ipv6", Setting{
		Env: "AMBIENT_IPV6", Helm: "ambient.ipv6", Kind: Bool, Example: "false",
	}),
	ofPlugin("host_probe_snat_ip", Setting{
		Env: "HOST_PROBE_SNAT_IP", Kind: ofField("host_probe_snat_ip", encodeString),
		Example: "169.254.9.9",
	}),
	ofPlugin("host_probe_snat_ipv6", Setting{
		Env: "HOST_PROBE_SNAT_IPV6", Kind: ofField("host_probe_snat_ipv6", encodeString),
		Example: "fd99::9",
	}),
	{
		Env: "ZTUNNEL_UDS_ADDRESS", Fixed: true, Kind: Path, Default: ZtunnelSocket,
		Example: "/run/ztunnel/z.sock",
		Help:    "socket at which ztunnel connects to the agent in ambient mode",
	},
}
