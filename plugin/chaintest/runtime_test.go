package chaintest_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// pluginName is the type of the plugin, and the name of its executable.
const pluginName = "sluice-cni"

// A chain describes a network configuration list.
type chain struct {
	// version is the version of the CNI specification.
	version string
	// first is the plugin that creates the interface: bridge or ptp; bridge if empty.
	first string
	// dualStack gives pods an address of each family.
	dualStack bool
	// fields contains further fields of sluice-cni's configuration.
	fields map[string]any
	// passesAnnotations is set if the runtime passes the pod's annotations.
	passesAnnotations bool
}

// latest is the newest version of the CNI specification.
const latest = "1.1.0"

// list returns the configuration for libcni.
func (c chain) list(t testing.TB, n *node) *libcni.NetworkConfigList {
	t.Helper()
	ranges := [][]map[string]any{{{"subnet": "10.244.0.0/16"}}}
	routes := []map[string]any{{"dst": "0.0.0.0/0"}}
	if c.dualStack {
		ranges = append(ranges, []map[string]any{{"subnet": "fd00:10:244::/64"}})
		routes = append(routes, map[string]any{"dst": "::/0"})
	}
	first := map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": n.state + "/host-local", "ranges": ranges,
			"routes": routes,
		},
	}
	if c.first != "" {
		first["type"] = c.first
	}
	sluice := map[string]any{"type": pluginName, "cni_agent_run_dir": n.run}
	if c.passesAnnotations {
		sluice["capabilities"] = map[string]bool{"io.kubernetes.cri.pod-annotations": true}
	}
	for field, value := range c.fields {
		sluice[field] = value
	}
	plugins := []any{
		first,
		map[string]any{
			"type": "portmap", "backend": "nftables",
			"capabilities": map[string]bool{"portMappings": true},
		},
		sluice,
	}
	text, err := json.Marshal(map[string]any{
		"cniVersion": c.version, "name": "e2e", "plugins": plugins,
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// runtimeConf returns the arguments that containerd passes for the pod.
func (p *pod) runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.id, NetNS: p.path, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", namespace},
			{"K8S_POD_NAME", p.name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.id},
			{"K8S_POD_UID", p.uid},
		},
		CapabilityArgs: map[string]any{
			"portMappings": []map[string]any{{
				"hostPort": p.hostPort, "containerPort": 8080, "protocol": "tcp",
			}},
			"io.kubernetes.cri.pod-annotations": p.annotations,
		},
	}
}

// add executes ADD of the whole chain, and sets the pod's addresses.
func (p *pod) add(t testing.TB, c chain) (*types100.Result, error) {
	t.Helper()
	var result types.Result
	list := c.list(t, p.node)
	err := p.node.ns.Do(func() (err error) {
		result, err = p.node.cni.AddNetworkList(t.Context(), list, p.runtimeConf())
		return err
	})
	if err != nil {
		return nil, err
	}
	converted, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, err
	}
	if len(converted.IPs) == 0 {
		return nil, fmt.Errorf("the result has no address: %+v", converted)
	}
	p.ips = nil
	for _, ip := range converted.IPs {
		p.ips = append(p.ips, ip.Address.IP.String())
	}
	return converted, nil
}

// mustAdd is like add, but fails the test if ADD fails.
func (p *pod) mustAdd(t testing.TB, c chain) *types100.Result {
	t.Helper()
	result, err := p.add(t, c)
	if err != nil {
		t.Fatalf("ADD: %v", err)
	}
	return result
}

// check executes CHECK.
func (p *pod) check(t testing.TB, c chain) error {
	t.Helper()
	list := c.list(t, p.node)
	return p.node.ns.Do(func() error {
		return p.node.cni.CheckNetworkList(t.Context(), list, p.runtimeConf())
	})
}

// del executes DEL.
func (p *pod) del(t testing.TB, c chain) error {
	t.Helper()
	list := c.list(t, p.node)
	return p.node.ns.Do(func() error {
		return p.node.cni.DelNetworkList(t.Context(), list, p.runtimeConf())
	})
}

// gc executes GC. The given pods have the valid attachments.
func (n *node) gc(t testing.TB, c chain, pods ...*pod) error {
	t.Helper()
	list := c.list(t, n)
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, p := range pods {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{
			ContainerID: p.id, IfName: "eth0",
		})
	}
	return n.ns.Do(func() error { return n.cni.GCNetworkList(t.Context(), list, args) })
}

// status executes STATUS.
func (n *node) status(t testing.TB, c chain) error {
	t.Helper()
	list := c.list(t, n)
	return n.ns.Do(func() error { return n.cni.GetStatusNetworkList(t.Context(), list) })
}
