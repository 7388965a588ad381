package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// A kindConfiguration contains the tested parts of the configuration of kind.
type kindConfiguration struct {
	Networking           map[string]any
	KubeadmConfigPatches []string
}

func decodeKindConfiguration(t *testing.T, o Options) kindConfiguration {
	var c kindConfiguration
	if err := yaml.Unmarshal(o.render("kind.yaml", nil), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestKindConfigurationOfAddressFamilies(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    map[string]any
	}{
		"IPv4 only": {Options{}, map[string]any{
			"disableDefaultCNI": true, "kubeProxyMode": "nftables", "ipFamily": "ipv4",
			"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/16",
		}},
		"both families": {Options{DualStack: true}, map[string]any{
			"disableDefaultCNI": true, "kubeProxyMode": "nftables", "ipFamily": "dual",
			"podSubnet":     "10.244.0.0/16,fd00:244::/56",
			"serviceSubnet": "10.96.0.0/16,fd00:96::/112",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := decodeKindConfiguration(t, c.options).Networking
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("networking (-want +got)\n%s", diff)
			}
		})
	}
}

func TestKindConfigurationContainsFeatureGates(t *testing.T) {
	patches := decodeKindConfiguration(t, Options{FeatureGates: map[string]bool{
		"B": false, "A": true,
	}}).KubeadmConfigPatches
	var found struct {
		Kind                         string
		ControllerManager, Scheduler struct {
			ExtraArgs []struct{ Name, Value string }
		}
	}
	if err := yaml.Unmarshal([]byte(patches[1]), &found); err != nil ||
		found.Kind != "ClusterConfiguration" {
		t.Fatalf("second patch: kind %q, error %v; want ClusterConfiguration: %s", found.Kind, err,
			patches[1])
	}
	for _, args := range []any{found.ControllerManager.ExtraArgs, found.Scheduler.ExtraArgs} {
		text := fmt.Sprint(args)
		for _, want := range []string{"{leader-elect false}", "{feature-gates A=true,B=false}"} {
			if !strings.Contains(text, want) {
				t.Errorf("arguments %s, want %s among them", text, want)
			}
		}
	}
}

func TestAddressOfFamilyReturnsAnAddressOfTheFamily(t *testing.T) {
	n := corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "worker"},
		{Type: corev1.NodeInternalIP, Address: "172.18.0.2"},
		{Type: corev1.NodeInternalIP, Address: "fc00::2"},
	}}}
	for other, want := range map[string]string{
		"10.244.1.0": "172.18.0.2", "fd00:244::": "fc00::2",
	} {
		if got, err := addressOfFamily(n, netip.MustParseAddr(other)); got != want || err != nil {
			t.Errorf("address of the family of %s: %q, error %v; want %s", other, got, err, want)
		}
	}
	n.Status.Addresses = n.Status.Addresses[:2]
	if got, err := addressOfFamily(n, netip.MustParseAddr("fd00:244::")); err == nil {
		t.Errorf("IPv6 address of an IPv4-only node: %s, want an error", got)
	}
}

func TestWithoutTaintKeepsOtherTaints(t *testing.T) {
	got := withoutTaint([]corev1.Taint{{Key: "a"}, {Key: "b"}}, "a")
	if diff := cmp.Diff([]corev1.Taint{{Key: "b"}}, got); diff != "" {
		t.Errorf("taints (-want +got)\n%s", diff)
	}
}

func TestCompleteLinesAreForwarded(t *testing.T) {
	var forwarded []string
	l := &lineLog{log: func(line string) { forwarded = append(forwarded, line) }}
	for _, text := range []string{"on", "e\n\n two\nthr"} {
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("Write(%q) returns %d, error %v; want %d", text, n, err, len(text))
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, forwarded); diff != "" {
		t.Errorf("forwarded lines (-want +got)\n%s", diff)
	}
	if got := l.lastLines(); got != "one\ntwo\nthr" {
		t.Errorf("last lines %q, want all lines and the incomplete one", got)
	}
	for i := range 1000 {
		fmt.Fprintln(l, i)
	}
	if got := l.lastLines(); strings.Contains(got, "two") || !strings.HasSuffix(got, "999\n") {
		t.Errorf("last lines after a thousand further lines: %q, want only the latest lines", got)
	}
}
