package chain_test

import (
	"fmt"
	"testing"

	"github.com/sluice-mesh/sluice/install/chain"
)

func TestMultusDelegates(t *testing.T) {
	const calico = `{"cniVersion":"1.0.0","name":"k8s-pod-network","plugins":[{"type":"calico"}]}`
	const with = `{"cniVersion":"1.0.0","name":"k8s-pod-network","plugins":[{"type":"calico"},{"type":"sluice-cni"}]}`
	for name, row := range map[string]struct {
		first string
		want  chain.Delegation
	}{
		"another plugin has no delegate": {
			`"type":"cilium-cni","clusterNetwork":"k8s-pod-network"`, chain.NoDelegation,
		},
		"the file, named by its path on the node": {
			`"type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/10-calico.conflist"`,
			chain.Followed,
		},
		"the file, named by its path, without the daemon": {
			`"type":"multus","clusterNetwork":"/etc/cni//net.d/10-calico.conflist"`, chain.Followed,
		},
		"a file of the same name in another directory": {
			`"type":"multus","clusterNetwork":"/etc/cni/multus/net.d/10-calico.conflist"`,
			chain.Unclear,
		},
		"a file of the same name in a directory that is relative": {
			`"type":"multus","clusterNetwork":"net.d/10-calico.conflist"`, chain.Unclear,
		},
		"the file, named without its directory and extension": {
			`"type":"multus","confDir":"/etc/cni/net.d","clusterNetwork":"10-calico"`, chain.Unclear,
		},
		"the file, named without its directory": {
			`"type":"multus","confDir":"/etc/cni/net.d","clusterNetwork":"10-calico.conflist"`,
			chain.Unclear,
		},
		"the network, named by its name": {
			`"type":"multus","confDir":"/etc/cni/net.d/","clusterNetwork":"k8s-pod-network"`,
			chain.Followed,
		},
		"the network, named by its name, as the daemon sees it": {
			`"type":"multus-shim","confDir":"/host/etc/cni/net.d","clusterNetwork":"k8s-pod-network"`,
			chain.Followed,
		},
		"a network of the same name in the default directory": {
			`"type":"multus","clusterNetwork":"k8s-pod-network"`, chain.Unclear,
		},
		"another file": {
			`"type":"multus","clusterNetwork":"/etc/cni/net.d/20-flannel.conflist"`,
			chain.Elsewhere,
		},
		"a directory": {
			`"type":"multus","clusterNetwork":"/etc/cni/multus/net.d"`, chain.Unclear,
		},
		"a definition in a namespace": {
			`"type":"multus","clusterNetwork":"kube-system/10-calico"`, chain.Unclear,
		},
		"another name, possibly of a definition": {
			`"type":"multus","clusterNetwork":"macvlan"`, chain.Unclear,
		},
		"no delegate":                {`"type":"multus"`, chain.Unclear},
		"a value that is not a name": {`"type":"multus","clusterNetwork":1`, chain.Unclear},
		"a copy without the plugin": {
			`"type":"multus","delegates":[` + calico + `]`, chain.Copied,
		},
		"a copy with the plugin": {
			`"type":"multus","delegates":[` + with + `]`, chain.Followed,
		},
		"a copy of a single-plugin configuration": {
			`"type":"multus","delegates":[{"type":"flannel"}]`, chain.Copied,
		},
		"only additional networks have the plugin": {
			`"type":"multus","delegates":[` + calico + `,` + with + `]`, chain.Copied,
		},
		"a copy that is ignored because of a name": {
			`"type":"multus","clusterNetwork":"macvlan","delegates":[` + calico + `]`,
			chain.Unclear,
		},
		"an invalid copy": {
			`"type":"multus","delegates":[1]`, chain.Copied,
		},
		"a list with plugins after Multus": {
			`"type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/10-calico.conflist"},{"type":"tuning"`,
			chain.Followed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"multus","plugins":[{%s}]}`,
				row.first)
			files := []chain.File{
				{Name: "00-first.conflist", Data: []byte(list)},
				{Name: "10-calico.conflist", Data: []byte(calico)},
			}
			first, _, err := chain.Discover(files, "")
			if err != nil {
				t.Fatal(err)
			}
			named, _, err := chain.Discover(files, "10-calico.conflist")
			if err != nil {
				t.Fatal(err)
			}
			if got := first.Delegates(named, "/etc/cni/net.d", "sluice-cni"); got != row.want {
				t.Errorf("delegation %q, want %q", got, row.want)
			}
		})
	}
}
