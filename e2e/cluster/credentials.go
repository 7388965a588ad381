package cluster

import (
	"crypto/ecdsa"
	"errors"

	"k8s.io/client-go/util/keyutil"
)

// writeCredentials writes the certificates, keys and kubeconfigs of the cluster. serverHost is the
// address of the API server in the kubeconfigs.
func (d *disk) writeCredentials(o Options, ca *authority, serverHost string) error {
	groupsOf := map[string][]string{ // by the program or person that uses the kubeconfig
		Scheduler: nil, ControllerManager: nil, Proxy: nil, Kubelet: {"system:nodes"},
		"admin": {"system:masters"},
	}
	for program, groups := range groupsOf {
		name := "system:" + program
		switch program {
		case Kubelet:
			name = "system:node:" + o.Name
		case "admin":
			name = "kubernetes-admin"
		}
		client, err := ca.issueClient(name, groups...)
		d.err = errors.Join(d.err, err)
		content, err := ca.kubeconfig("https://"+serverHost+":"+apiPort, client)
		d.err = errors.Join(d.err, err)
		d.write(kubeconfigPath(program), content, 0o600)
	}
	serving, err := ca.issueServer(APIServer, []string{
		"localhost", o.Name, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}, serverAddresses())
	d.err = errors.Join(d.err, err)
	// The API server has all permissions for kubelets.
	kubeletClient, err := ca.issueClient("kube-apiserver-kubelet-client", "system:masters")
	d.err = errors.Join(d.err, err)
	accountKey, err := newKey()
	if d.err = errors.Join(d.err, err); d.err != nil {
		return d.err
	}
	for name, p := range map[string]keyPair{"apiserver": serving, "kubelet-client": kubeletClient} {
		d.write(pkiDir+name+".crt", p.certificate, 0o644)
		d.write(pkiDir+name+".key", p.key, 0o600)
	}
	d.write(pkiDir+"ca.crt", ca.pem, 0o644)
	for name, key := range map[string]*ecdsa.PrivateKey{"accounts": accountKey, "ca": ca.key} {
		content, err := keyutil.MarshalPrivateKeyToPEM(key)
		d.err = errors.Join(d.err, err)
		d.write(pkiDir+name+".key", content, 0o600)
	}
	return d.err
}
