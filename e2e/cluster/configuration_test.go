package cluster

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestConflistHasARangeAndARouteForEachFamily(t *testing.T) {
	for _, c := range []struct {
		options Options
		subnets []string
		want    string
	}{
		{Options{}, []string{"10.244.0.0/24"}, `{"type":"host-local",
			"ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}`},
		{Options{DualStack: true}, []string{"10.244.0.0/24", "fd00:244::/64"}, `{"type":"host-local",
			"ranges":[[{"subnet":"10.244.0.0/24"}],[{"subnet":"fd00:244::/64"}]],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`},
	} {
		var got struct {
			CNIVersion string
			Plugins    []struct{ IPAM any }
		}
		var want any
		text := c.options.conflist(c.subnets...)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Plugins[0].IPAM); diff != "" || got.CNIVersion != "1.0.0" {
			t.Errorf("%+v: version %q, want 1.0.0; IPAM (-want +got)\n%s", c.options, got.CNIVersion,
				diff)
		}
	}
}

func TestServicesGetNamesAddressesAndFeatureGates(t *testing.T) {
	o := Options{Name: "n", DualStack: true, FeatureGates: map[string]bool{"B": false, "A": true}}
	var names []string
	for _, s := range o.services("192.0.2.1") {
		names = append(names, s.Name)
		for service, arguments := range map[string][]string{
			Etcd: {"--initial-cluster=n=http://127.0.0.1:2380"},
			APIServer: {
				"--advertise-address=192.0.2.1", "--feature-gates=A=true,B=false",
				"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
			},
			ControllerManager: {"--feature-gates=A=true,B=false"},
			Scheduler:         {"--feature-gates=A=true,B=false"},
			Kubelet:           {"--hostname-override=n", "--node-ip=10.89.0.2,fd00:89::2"},
			Proxy:             {"--config=" + proxyConfigPath},
		} {
			for _, a := range arguments {
				if s.Name == service && !slices.Contains(s.Argv, a) {
					t.Errorf("%s: arguments %q, want %s among them", service, s.Argv, a)
				}
			}
		}
	}
	want := []string{
		Containerd, Etcd, APIServer, ControllerManager, Scheduler, Kubelet, Proxy,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("services (-want +got)\n%s", diff)
	}
}

func TestKubeletUsesTheRuntimeOfTheNode(t *testing.T) {
	var got struct {
		ContainerRuntimeEndpoint, CgroupDriver, NodeStatusUpdateFrequency string
		FeatureGates                                                      map[string]bool
	}
	o := Options{FeatureGates: map[string]bool{"A": true}}
	if err := yaml.Unmarshal(o.kubelet(CRIO, "systemd", "5s"), &got); err != nil {
		t.Fatal(err)
	}
	if got.ContainerRuntimeEndpoint != "unix:///run/crio/crio.sock" ||
		got.CgroupDriver != "systemd" || got.NodeStatusUpdateFrequency != "5s" ||
		!got.FeatureGates["A"] {
		t.Errorf("configuration of the kubelet %+v, want the socket of CRI-O, cgroup driver systemd, an "+
			"update every 5s and feature gate A", got)
	}
}

// TestEveryConfigurationIsRendered renders the files in config that no other test here renders.
func TestEveryConfigurationIsRendered(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	for _, runtime := range []string{Containerd, CRIO} {
		o := Options{Name: "n", Runtime: runtime}
		if services := o.decodeServices("vm-services.yaml", nil); len(services) != 2 {
			t.Errorf("services of the virtual machine: %+v, want qemu and ssh", services)
		}
		if err := o.writeNodeFiles(t.TempDir(), ca, nil); err != nil {
			t.Error(err)
		}
		for _, name := range []string{
			"containerd.toml", "kind.yaml", "kube-proxy.yaml", "ssh_config", "vm-connect",
		} {
			if len(o.render(name, nil)) == 0 {
				t.Errorf("%s is empty", name)
			}
		}
	}
}
