package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
)

// Directories, files, sockets and addresses of a node.
const (
	kubernetesDir        = "/etc/kubernetes"
	pkiDir               = kubernetesDir + "/pki/"
	adminKubeconfig      = kubernetesDir + "/admin.conf"
	kubeletConfigPath    = kubernetesDir + "/kubelet.yaml"
	proxyConfigPath      = kubernetesDir + "/kube-proxy.yaml"
	containerdConfigPath = "/etc/containerd/config.toml"
	containerdSocket     = "unix:/run/containerd/containerd.sock"
	resolvConf           = "/etc/resolv-pods.conf"
	// volumePlugins replaces the default directory /usr/libexec/kubernetes, which two programs
	// would create in the read-only /usr.
	volumePlugins = "/var/lib/kubelet/volumeplugins"
	etcdURL       = "http://127.0.0.1:2379"
	etcdPeerURL   = "http://127.0.0.1:2380"
	apiPort       = "6443"
)

// kubeconfigPath returns the path of a program's kubeconfig.
func kubeconfigPath(program string) string { return kubernetesDir + "/" + program + ".conf" }

// services returns the node's services in starting order. apiAddress is the address that the API
// server advertises.
func (o Options) services(apiAddress string) []machine.Service {
	afterAPI := "tcp:127.0.0.1:" + apiPort
	return []machine.Service{
		{Name: Containerd, Argv: []string{"containerd", "--config", containerdConfigPath}},
		// No data is needed after a reboot of this machine, so writes need not reach the disk.
		{Name: Etcd, Argv: []string{
			"etcd", "--name=" + o.Name, "--data-dir=/var/lib/etcd", "--unsafe-no-fsync",
			"--log-level=warn",
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + etcdPeerURL,
			"--initial-advertise-peer-urls=" + etcdPeerURL,
			"--initial-cluster=" + o.Name + "=" + etcdPeerURL,
		}},
		{Name: APIServer, After: "tcp:127.0.0.1:2379", Argv: o.withFeatureGates(
			"kube-apiserver", "--advertise-address="+apiAddress, "--secure-port="+apiPort,
			"--etcd-servers="+etcdURL,
			"--service-cluster-ip-range="+o.joinedAddresses(serviceRangeIPv4, serviceRangeIPv6),
			"--allow-privileged=true",
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--client-ca-file="+pkiDir+"ca.crt", "--tls-cert-file="+pkiDir+"apiserver.crt",
			"--tls-private-key-file="+pkiDir+"apiserver.key",
			"--kubelet-client-certificate="+pkiDir+"kubelet-client.crt",
			"--kubelet-client-key="+pkiDir+"kubelet-client.key",
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--requestheader-client-ca-file="+pkiDir+"ca.crt",
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--service-account-key-file="+pkiDir+"accounts.key",
			"--service-account-signing-key-file="+pkiDir+"accounts.key",
		)},
		// With the default of 20 requests per second, the service account of a new namespace is
		// created late.
		{
			Name: ControllerManager, After: afterAPI,
			Argv: o.withFeatureGates(append(controlPlaneArgv(ControllerManager),
				"--kube-api-qps=1000", "--kube-api-burst=2000",
				"--use-service-account-credentials=true",
				"--service-account-private-key-file="+pkiDir+"accounts.key",
				"--root-ca-file="+pkiDir+"ca.crt",
				"--cluster-signing-cert-file="+pkiDir+"ca.crt",
				"--cluster-signing-key-file="+pkiDir+"ca.key",
				"--flex-volume-plugin-dir="+volumePlugins,
			)...),
		},
		{
			Name: Scheduler, After: afterAPI,
			Argv: o.withFeatureGates(append(controlPlaneArgv(Scheduler), "--kube-api-qps=1000",
				"--kube-api-burst=2000")...),
		},
		{Name: Kubelet, After: containerdSocket, Argv: []string{
			"kubelet", "--config=" + kubeletConfigPath, "--kubeconfig=" + kubeconfigPath(Kubelet),
			"--hostname-override=" + o.Name,
			"--node-ip=" + o.joinedAddresses(nodeIPv4, nodeIPv6), "--v=2",
		}},
		{
			Name: Proxy, After: afterAPI,
			Argv: []string{
				"kube-proxy", "--config=" + proxyConfigPath, "--hostname-override=" + o.Name,
			},
		},
	}
}

// controlPlaneArgv returns the command line of the controller manager or the scheduler, which
// authenticate and authorize requests for their metrics with the API server.
func controlPlaneArgv(program string) []string {
	file := kubeconfigPath(program)
	return []string{
		program, "--kubeconfig=" + file, "--authentication-kubeconfig=" + file,
		"--authorization-kubeconfig=" + file,
		"--bind-address=127.0.0.1", "--leader-elect=false",
	}
}

// withFeatureGates returns the command line with a flag for the feature gates, if there are any.
func (o Options) withFeatureGates(argv ...string) []string {
	if len(o.FeatureGates) == 0 {
		return argv
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, o.FeatureGates[name]))
	}
	return append(argv, "--feature-gates="+strings.Join(gates, ","))
}
