package settings

// A Refusal is a variable of Istio's installer that has no effect or another meaning in Sluice.
type Refusal struct {
	Env string
	// Reason continues a sentence that begins with the variable's name.
	Reason string
}

const (
	noAmbient  = "belongs to ambient mode, which is not supported: Sluice redirects sidecars only"
	noBinaries = "selects an iptables program, and Sluice runs no programs"
)

// Refused returns the refusals.
func Refused() []Refusal {
	return []Refusal{
		{"AMBIENT_DISABLE_SAFE_UPGRADE", noAmbient},
		{"AMBIENT_DNS_CAPTURE", noAmbient},
		{"AMBIENT_ENABLED", noAmbient},
		{"AMBIENT_ENABLEMENT_SELECTOR", noAmbient},
		{"AMBIENT_IPV6", noAmbient},
		{"AMBIENT_RECONCILE_POD_RULES_ON_STARTUP", noAmbient},
		{
			"CNI_NETWORK_CONFIG",
			"is not read by Istio either; these settings determine the plugin's configuration",
		},
		{
			"CNI_NETWORK_CONFIG_FILE",
			"is not read by Istio either; these settings determine the plugin's configuration",
		},
		{"ENABLE_AMBIENT_DETECTION_RETRY", noAmbient},
		{"FORCE_IPTABLES_BINARY", noBinaries +
			"; SLUICE_BACKEND=nft or legacy selects the backend"},
		{
			"ISTIO_OWNED_CNI_CONF_FILENAME",
			"is set by Istio's chart and not read by Istio; use ISTIO_OWNED_CNI_CONFIG_FILENAME",
		},
		{"NATIVE_NFTABLES", "is not supported; use SLUICE_BACKEND=nft"},
		{"REPAIR_NODE_NAME", "is not supported; the agent repairs pods of its own node, NODE_NAME"},
		{"ZTUNNEL_UDS_ADDRESS", noAmbient},
	}
}
