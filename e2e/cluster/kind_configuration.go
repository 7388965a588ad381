package cluster

import "strings"

// Networks of a cluster of kind. kubeadm gives every node a part of the pods' ranges: 256 addresses
// of IPv4.
const (
	kindPodRanges, kindPodRange         = "10.244.0.0/16,fd00:244::/56", "10.244.0.0/16"
	kindServiceRanges, kindServiceRange = serviceRangeIPv4 + "," + serviceRange, serviceRangeIPv4
)

// kind is the configuration of kind: it makes the nodes and the control plane, and leaves the pods'
// network to the cluster, which has the same as the local one.
func (o Options) kind() object {
	networking := object{
		"disableDefaultCNI": true, "kubeProxyMode": "nftables", "ipFamily": "ipv4",
		"podSubnet": kindPodRange, "serviceSubnet": kindServiceRange,
	}
	if o.DualStack {
		networking["ipFamily"], networking["podSubnet"], networking["serviceSubnet"] = "dual",
			kindPodRanges, kindServiceRanges
	}
	return object{
		"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "networking": networking,
		"featureGates":         o.FeatureGates,
		"nodes":                []object{{"role": "control-plane"}, {"role": "worker"}},
		"kubeadmConfigPatches": []string{patch(o.kindKubelet()), patch(o.kindControlPlane())},
	}
}

// kindKubelet returns the changes of a kubelet's configuration.
func (o Options) kindKubelet() object {
	return object{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"failCgroupV1": false,
		// Tests wait for changes and start a hundred pods.
		"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s",
		"syncFrequency": "10s", "maxPods": 250,
		"kubeAPIQPS": 500, "kubeAPIBurst": 1000,
	}
}

// kindControlPlane returns the changes of the control plane: without leader election the components
// continue when the API server is available again, instead of restarting. With the default of 20
// requests per second a new namespace waits for its service account.
func (o Options) kindControlPlane() object {
	var args []object
	for _, flag := range o.gated("--leader-elect=false", "--kube-api-qps=1000",
		"--kube-api-burst=2000") {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		args = append(args, object{"name": name, "value": value})
	}
	return object{
		"kind": "ClusterConfiguration", "apiVersion": "kubeadm.k8s.io/v1beta4",
		"controllerManager": object{"extraArgs": args}, "scheduler": object{"extraArgs": args},
	}
}

// patch returns an object as text. Encoding of strings, numbers and containers of them cannot fail.
func patch(o object) string {
	text, err := encoded(o)
	if err != nil {
		panic(err)
	}
	return string(text)
}
