package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
)

// Directories and files of a node.
const (
	kubernetesDir  = "/etc/kubernetes"
	pki            = kubernetesDir + "/pki/"
	adminConfig    = kubernetesDir + "/admin.conf"
	kubeletConfig  = kubernetesDir + "/kubelet.yaml"
	proxyConfig    = kubernetesDir + "/kube-proxy.yaml"
	containerdConf = "/etc/containerd/config.toml"
	containerdSock = "unix:/run/containerd/containerd.sock"
	resolvConf     = "/etc/resolv-pods.conf"
	// volumePlugins replaces the default directory /usr/libexec/kubernetes, which two programs
	// would create in the read-only /usr.
	volumePlugins = "/var/lib/kubelet/volumeplugins"
	etcdURL       = "http://127.0.0.1:2379"
	etcdPeerURL   = "http://127.0.0.1:2380"
	apiPort       = "6443"
)

// kubeconfigPath returns the path of a program's kubeconfig.
func kubeconfigPath(program string) string { return kubernetesDir + "/" + program + ".conf" }

// services returns the node's services in starting order. address is the address of the API server.
func (o Options) services(address string) []machine.Service {
	afterAPI := "tcp:127.0.0.1:" + apiPort
	return []machine.Service{
		{Name: Containerd, Argv: []string{"containerd", "--config", containerdConf}},
		// No data is needed after a reboot of this machine, so writes need not reach the disk.
		{Name: Etcd, Argv: []string{
			"etcd", "--name=" + o.Name, "--data-dir=/var/lib/etcd", "--unsafe-no-fsync",
			"--log-level=warn",
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + etcdPeerURL,
			"--initial-advertise-peer-urls=" + etcdPeerURL,
			"--initial-cluster=" + o.Name + "=" + etcdPeerURL,
		}},
		{Name: APIServer, After: "tcp:127.0.0.1:2379", Argv: o.gated(
			"kube-apiserver", "--advertise-address="+address, "--secure-port="+apiPort,
			"--etcd-servers="+etcdURL,
			"--service-cluster-ip-range="+o.joined(serviceRangeIPv4, serviceRangeIPv6),
			"--allow-privileged=true",
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--client-ca-file="+pki+"ca.crt", "--tls-cert-file="+pki+"apiserver.crt",
			"--tls-private-key-file="+pki+"apiserver.key",
			"--kubelet-client-certificate="+pki+"kubelet-client.crt",
			"--kubelet-client-key="+pki+"kubelet-client.key",
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--requestheader-client-ca-file="+pki+"ca.crt",
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--service-account-key-file="+pki+"accounts.pub",
			"--service-account-signing-key-file="+pki+"accounts.key",
		)},
		// With the default of 20 requests per second, the service account of a new namespace is
		// created late.
		{
			Name: ControllerManager, After: afterAPI,
			Argv: o.gated(append(authorized(ControllerManager),
				"--kube-api-qps=1000", "--kube-api-burst=2000",
				"--use-service-account-credentials=true",
				"--service-account-private-key-file="+pki+"accounts.key",
				"--root-ca-file="+pki+"ca.crt",
				"--cluster-signing-cert-file="+pki+"ca.crt",
				"--cluster-signing-key-file="+pki+"ca.key",
				"--flex-volume-plugin-dir="+volumePlugins,
			)...),
		},
		{
			Name: Scheduler, After: afterAPI,
			Argv: o.gated(append(authorized(Scheduler), "--kube-api-qps=1000",
				"--kube-api-burst=2000")...),
		},
		{Name: Kubelet, After: containerdSock, Argv: []string{
			"kubelet", "--config=" + kubeletConfig, "--kubeconfig=" + kubeconfigPath(Kubelet),
			"--hostname-override=" + o.Name,
			"--node-ip=" + o.joined(nodeIPv4, nodeIPv6), "--v=2",
		}},
		{
			Name: Proxy, After: afterAPI,
			Argv: []string{"kube-proxy", "--config=" + proxyConfig, "--hostname-override=" +
				o.Name},
		},
	}
}

// authorized returns the command line of the controller manager or the scheduler, which
// authenticate and authorize requests for their metrics with the API server.
func authorized(program string) []string {
	file := kubeconfigPath(program)
	return []string{
		program, "--kubeconfig=" + file, "--authentication-kubeconfig=" + file,
		"--authorization-kubeconfig=" + file,
		"--bind-address=127.0.0.1", "--leader-elect=false",
	}
}

// gated returns the command line with a flag for the feature gates, if there are any.
func (o Options) gated(argv ...string) []string {
	if len(o.FeatureGates) == 0 {
		return argv
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, o.FeatureGates[name]))
	}
	return append(argv, "--feature-gates="+strings.Join(gates, ","))
}
