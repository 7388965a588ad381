// Command istio-ambient writes rules into the current network namespace as istio-cni does in the
// namespace of a pod in ambient mode or, with the argument host, of a node. It calls the packages
// of Istio that istio-cni calls. The parameters are environment variables named like
// istio-cni's variables and annotations: DNS_CAPTURE is ambient.istio.io/dns-capture.
// HOST_MOUNTS_PATH is the directory that contains proc, in which the nftables backend searches for
// the kubelet. For a node, each line of the standard input adds a pod to the mesh or removes it:
//
//	add UID ADDRESS...
//	remove UID ADDRESS...
package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"istio.io/istio/cni/pkg/config"
	"istio.io/istio/cni/pkg/iptables"
	"istio.io/istio/cni/pkg/scopes"
	"istio.io/istio/cni/pkg/trafficmanager"
	"istio.io/istio/tools/istio-iptables/pkg/dependencies"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes the rules of a pod or of a node.
func run() error {
	sources, err := addresses("HOST_PROBE_SNAT_IP", "HOST_PROBE_SNAT_IPV6")
	if err != nil {
		return err
	}
	shared := config.AmbientConfig{
		EnableIPv6: isTrue("AMBIENT_IPV6"), RedirectDNS: isTrue("AMBIENT_DNS_CAPTURE"),
		Reconcile:            true,
		HostProbeSNATAddress: sources[0], HostProbeV6SNATAddress: sources[1],
	}
	useNFTables := isTrue("NATIVE_NFTABLES")
	host, pod := shared, shared
	hostManager, podManager, err := trafficmanager.NewTrafficRuleManager(
		&trafficmanager.TrafficRuleManagerConfig{
			NativeNftables: useNFTables, HostConfig: &host, PodConfig: &pod,
			HostDeps: &dependencies.RealDependencies{ForceIptablesBinary: "legacy"},
			PodDeps: &dependencies.RealDependencies{
				ForceIptablesBinary: "legacy", UsePodScopedXtablesLock: true,
			},
			NlDeps: iptables.RealNlDeps(),
		})
	if err != nil {
		return err
	}
	if slices.Equal(os.Args[1:], []string{"host"}) {
		return programHost(hostManager, useNFTables, shared.EnableIPv6)
	}
	return programPod(podManager)
}

// programPod writes the rules of a pod.
func programPod(manager trafficmanager.TrafficRuleManager) error {
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

// isTrue reports whether an environment variable is "true".
func isTrue(variable string) bool { return os.Getenv(variable) == "true" }

// addresses returns the addresses in environment variables.
func addresses(variables ...string) ([]netip.Addr, error) {
	parsed := make([]netip.Addr, len(variables))
	for i, name := range variables {
		var err error
		if parsed[i], err = netip.ParseAddr(os.Getenv(name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return parsed, nil
}
