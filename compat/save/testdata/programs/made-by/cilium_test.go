package iptables

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/spf13/afero"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cilium/cilium/pkg/datapath/linux/sysctl"
)

// TestInstallRecordedRules installs the rules of an agent with two proxies and a pod whose DNS is
// not tracked. It must be placed in pkg/datapath/iptables of github.com/cilium/cilium.
func TestInstallRecordedRules(t *testing.T) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ip4tables.initLogger(log)
	ip6tables.initLogger(log)
	ip4tables.initArgs(t.Context(), 5)
	ip6tables.initArgs(t.Context(), 5)
	m := &Manager{
		logger: log, sysctl: sysctl.NewDirectSysctl(afero.NewOsFs(), "/proc"), haveIp6tables: true, haveSocketMatch: true,
		sharedCfg: SharedConfig{
			TunnelingEnabled: true, IptablesMasqueradingIPv4Enabled: true, IptablesMasqueradingIPv6Enabled: true,
			EnableIPv4: true, EnableIPv6: true, EnableL7Proxy: true, InstallIptRules: true,
			EnableXTSocketFallback: true, MasqueradeInterfaces: []string{"eth0"},
		},
		cfg: Config{PrependIptablesChains: true, IPTablesRandomFully: true},
	}
	state := desiredState{
		installRules: true,
		devices:      sets.New("eth0"),
		localNodeInfo: localNodeInfo{
			internalIPv4: net.ParseIP("10.244.0.1"), internalIPv6: net.ParseIP("fd00:10:244::1"),
			ipv4AllocCIDR: "10.244.0.0/24", ipv6AllocCIDR: "fd00:10:244::/64",
			ipv4NativeRoutingCIDR: "10.244.0.0/16", ipv6NativeRoutingCIDR: "fd00:10:244::/56",
		},
		proxies: map[string]proxyInfo{
			"cilium-dns-egress":   {name: "cilium-dns-egress", port: 41001},
			"cilium-http-ingress": {name: "cilium-http-ingress", port: 41002},
		},
		noTrackPods: sets.New(noTrackPodInfo{ip: netip.MustParseAddr("10.244.0.53"), port: 53}),
	}
	if err := m.doInstallRules(state, true); err != nil {
		t.Fatal(err)
	}
}
