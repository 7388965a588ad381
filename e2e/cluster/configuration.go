package cluster

import (
	"cmp"
	_ "embed" // for the configuration
	"encoding/json"
	"fmt"
)

//go:embed containerd.toml
var containerdConfiguration []byte

// An object is a JSON object.
type object = map[string]any

// kubeletConfiguration returns the configuration of the node's kubelet.
func (o Options) kubeletConfiguration() object {
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true},
			"x509": object{"clientCAFile": pkiDir + "ca.crt"},
		},
		"authorization": object{"mode": "Webhook"},
		"clusterDomain": "cluster.local", "clusterDNS": []string{dnsAddress},
		"resolvConf":   resolvConf,
		"featureGates": o.FeatureGates,
		// This machine may use cgroup v1 and swap, and may not permit lowering oom_score_adj.
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "failSwapOn": false, "oomScoreAdj": 0,
		// The node shares the file system of this machine, and must not evict pods to free space.
		"evictionHard": object{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%",
		},
		"imageGCHighThresholdPercent": 100,
		// Tests wait for changes of status, and start 100 pods on a node.
		"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s",
		"syncFrequency": "10s", "maxPods": 250,
		"kubeAPIQPS": 500, "kubeAPIBurst": 1000,
		"volumePluginDir": volumePlugins,
	}
}

// proxyConfiguration returns the configuration of the node's kube-proxy. The conntrack values
// prevent kube-proxy from changing the kernel-wide conntrack sysctls.
func (o Options) proxyConfiguration() object {
	return object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "bindAddress": "0.0.0.0",
		"clusterCIDR":      o.joinedAddresses(podRangeIPv4, podRangeIPv6),
		"clientConnection": object{"kubeconfig": kubeconfigPath(Proxy)},
		"conntrack": object{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
		"nftables":     object{"minSyncPeriod": "100ms"},
		"featureGates": o.FeatureGates,
	}
}

// conflist returns the content of the file ConflistPath of a node with the subnets of the node's
// pods, one for each address family.
func (o Options) conflist(subnets ...string) object {
	var ranges [][]object
	for _, subnet := range subnets {
		ranges = append(ranges, []object{{"subnet": subnet}})
	}
	var routes []object
	for _, anyAddress := range o.addressList("0.0.0.0/0", "::/0") {
		routes = append(routes, object{"dst": anyAddress})
	}
	return object{
		"cniVersion": cmp.Or(o.CNIVersion, "1.0.0"), "name": "e2e",
		"plugins": []object{
			{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
				"hairpinMode": true,
				"ipam":        object{"type": "host-local", "ranges": ranges, "routes": routes},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}
}

// encodeJSON encodes an object as indented JSON.
func encodeJSON(o object) ([]byte, error) {
	out, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a configuration: %w", err)
	}
	return append(out, '\n'), nil
}
