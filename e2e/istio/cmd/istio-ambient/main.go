// Command istio-ambient programs the current network namespace like istio-cni programs a pod in
// ambient mode. It calls the same packages of Istio. The parameters are environment variables with
// the names of istio-cni's variables and annotations.
package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"istio.io/istio/cni/pkg/config"
	"istio.io/istio/cni/pkg/iptables"
	"istio.io/istio/cni/pkg/scopes"
	"istio.io/istio/cni/pkg/trafficmanager"
	"istio.io/istio/tools/istio-iptables/pkg/dependencies"
)

func main() {
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func program() error {
	sources, err := addresses("HOST_PROBE_SNAT_IP", "HOST_PROBE_SNAT_IPV6")
	if err != nil {
		return err
	}
	shared := config.AmbientConfig{
		EnableIPv6: isTrue("AMBIENT_IPV6"), RedirectDNS: isTrue("AMBIENT_DNS_CAPTURE"), Reconcile: true,
		HostProbeSNATAddress: sources[0], HostProbeV6SNATAddress: sources[1],
	}
	host, pod := shared, shared
	_, manager, err := trafficmanager.NewTrafficRuleManager(&trafficmanager.TrafficRuleManagerConfig{
		NativeNftables: isTrue("NATIVE_NFTABLES"), HostConfig: &host, PodConfig: &pod,
		HostDeps: &dependencies.RealDependencies{ForceIptablesBinary: "legacy"},
		PodDeps: &dependencies.RealDependencies{
			ForceIptablesBinary: "legacy", UsePodScopedXtablesLock: true,
		},
		NlDeps: iptables.RealNlDeps(),
	})
	if err != nil {
		return err
	}
	overrides := config.PodLevelOverrides{IngressMode: isTrue("BYPASS_INBOUND_CAPTURE")}
	switch os.Getenv("DNS_CAPTURE") {
	case "true":
		overrides.DNSProxy = config.PodDNSEnabled
	case "false":
		overrides.DNSProxy = config.PodDNSDisabled
	}
	for name := range strings.SplitSeq(os.Getenv("REROUTE_VIRTUAL_INTERFACES"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			overrides.VirtualInterfaces = append(overrides.VirtualInterfaces, name)
		}
	}
	return manager.CreateInpodRules(scopes.CNIAgent, overrides)
}

func isTrue(variable string) bool { return os.Getenv(variable) == "true" }

func addresses(variables ...string) ([]netip.Addr, error) {
	list := make([]netip.Addr, len(variables))
	for i, name := range variables {
		var err error
		if list[i], err = netip.ParseAddr(os.Getenv(name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return list, nil
}
