package bench_test

import (
	"os"

	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// runInstallCNI is a script that executes install-cni with the directory DIR as root directory,
// because install-cni uses fixed paths of its image and mounts.
const runInstallCNI = `set -e
mount --make-rprivate /
cd "$DIR"
mount -t proc proc proc
touch install-cni
mount --bind "$PROGRAM" install-cni
exec chroot . /install-cni --ctrlz_port 0`

// startInstaller starts Istio's install-cni with the environment that Istio's chart sets by
// default, and returns when install-cni is ready. The port of its readiness probe is fixed.
func (a *nodeAgent) startInstaller(tools bench.Tools) error {
	program, err := tools.Find(bench.InstallCNI)
	if err != nil {
		return err
	}
	const account = "var/run/secrets/kubernetes.io/serviceaccount"
	if err := a.makeDirs("proc", "tmp", "etc", "opt/cni/bin", "host/opt/cni/bin", "host/etc/cni/net.d",
		"var/run/istio-cni", account); err != nil {
		return err
	}
	a.api.ProjectInto(a.path(account))
	for name, content := range map[string]string{
		"etc/hosts": "127.0.0.1 localhost\n", "host/etc/cni/net.d/10-net.conflist": primary,
		"opt/cni/bin/istio-cni": "the plugin", account + "/namespace": apiservertest.Namespace,
	} {
		if err := os.WriteFile(a.path(name), []byte(content), 0o700); err != nil {
			return err
		}
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	err = a.run(runInstallCNI,
		"PROGRAM="+program, "CHAINED_CNI_PLUGIN=true", "AMBIENT_ENABLED=false",
		"EXCLUDE_NAMESPACES=kube-system",
		"REPAIR_ENABLED=true", "REPAIR_REPAIR_PODS=true", "REPAIR_LABEL_PODS=false",
		"REPAIR_DELETE_PODS=false",
		"REPAIR_INIT_CONTAINER_NAME=istio-validation", "REPAIR_NODE_NAME="+apiservertest.Node,
		"REPAIR_RUN_AS_DAEMON=true",
		"REPAIR_SIDECAR_ANNOTATION=sidecar.istio.io/status", "NODE_NAME="+apiservertest.Node,
		"KUBERNETES_NODE_NAME="+apiservertest.Node,
		"POD_NAME=istio-cni-node-x7k2p", "POD_NAMESPACE="+apiservertest.Namespace,
		"MONITORING_PORT="+ports[0])
	if err != nil {
		return err
	}
	return await("http://127.0.0.1:8000/readyz", "")
}
