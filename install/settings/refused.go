package settings

// A Refusal is a variable of Istio's installer that means nothing here, or would mean something
// else.
type Refusal struct {
	Env string
	// Reason completes the sentence that begins with the variable's name.
	Reason string
}

const (
	noAmbient  = "belongs to ambient mode, which Sluice does not do: it redirects sidecars"
	noBinaries = "chooses a program to run, and Sluice runs none"
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
		{"CNI_NETWORK_CONFIG", "was never read by Istio either; the plugin's configuration comes from these settings"},
		{"CNI_NETWORK_CONFIG_FILE", "was never read by Istio either; the plugin's configuration comes from these settings"},
		{"ENABLE_AMBIENT_DETECTION_RETRY", noAmbient},
		{"FORCE_IPTABLES_BINARY", noBinaries + "; SLUICE_BACKEND=nft or legacy chooses the engine"},
		{"ISTIO_OWNED_CNI_CONF_FILENAME", "is what Istio's chart writes and nothing reads; use ISTIO_OWNED_CNI_CONFIG_FILENAME"},
		{"NATIVE_NFTABLES", "is SLUICE_BACKEND=nft here"},
		{"REPAIR_NODE_NAME", "is NODE_NAME here, and always the agent's own node"},
		{"ZTUNNEL_UDS_ADDRESS", noAmbient},
	}
}
