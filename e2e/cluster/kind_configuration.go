package cluster

import "strings"

// Networks of a kind cluster. Each node is assigned a subnet of each pod range; the prefix length
// of the IPv4 subnet is 24.
const (
	kindPodRange          = "10.244.0.0/16"
	kindServiceRange      = serviceRangeIPv4
	kindDualPodRanges     = kindPodRange + ",fd00:244::/56"
	kindDualServiceRanges = serviceRangeIPv4 + "," + serviceRangeIPv6
)

// kindConfiguration returns the configuration of kind, without a CNI plugin, because
// installPodNetwork installs the pods' network.
func (o Options) kindConfiguration() object {
	networking := object{
		"disableDefaultCNI": true, "kubeProxyMode": "nftables", "ipFamily": "ipv4",
		"podSubnet": kindPodRange, "serviceSubnet": kindServiceRange,
	}
	if o.DualStack {
		networking["ipFamily"], networking["podSubnet"], networking["serviceSubnet"] = "dual",
			kindDualPodRanges, kindDualServiceRanges
	}
	return object{
		"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "networking": networking,
		"featureGates":         o.FeatureGates,
		"nodes":                []object{{"role": "control-plane"}, {"role": "worker"}},
		"kubeadmConfigPatches": []string{patch(o.kindKubelet()), patch(o.kindControlPlane())},
	}
}

// kindKubelet returns the patch of the kubelet's configuration.
func (o Options) kindKubelet() object {
	return object{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"failCgroupV1": false,
		// Tests wait for changes of status, and start 100 pods on a node.
		"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s",
		"syncFrequency": "10s", "maxPods": 250,
		"kubeAPIQPS": 500, "kubeAPIBurst": 1000,
	}
}

// kindControlPlane returns the patch of the control plane. Without leader election, the components
// do not exit when the API server is unavailable. With the default of 20 requests per second, the
// service account of a new namespace is created late.
func (o Options) kindControlPlane() object {
	var args []object
	for _, flag := range o.withFeatureGates("--leader-elect=false", "--kube-api-qps=1000",
		"--kube-api-burst=2000") {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		args = append(args, object{"name": name, "value": value})
	}
	return object{
		"kind": "ClusterConfiguration", "apiVersion": "kubeadm.k8s.io/v1beta4",
		"controllerManager": object{"extraArgs": args}, "scheduler": object{"extraArgs": args},
	}
}

// patch returns the text of a patch: an object as JSON, which is valid YAML.
func patch(o object) string {
	text, err := encodeJSON(o)
	if err != nil {
		panic(err) // cannot happen: all values of the object can be encoded as JSON
	}
	return string(text)
}
