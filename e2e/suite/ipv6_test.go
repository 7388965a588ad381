package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// ipv6 contains the tests with IPv6-only pods.
var ipv6 = testGroup{name: "IPv6 only", tests: []groupTest{
	{
		"pods with only an IPv6 address reach each other and Services through both proxies",
		withOnlyIPv6(checkIPv6),
	},
	{
		"TPROXY works between pods with only an IPv6 address, and keeps the client's address",
		withOnlyIPv6(checkIPv6TProxy),
	},
	{
		"DNS queries of pods with only an IPv6 address are captured",
		withOnlyIPv6(checkIPv6DNS),
	},
}}

// withOnlyIPv6 runs a test while the node's CNI configuration assigns only IPv6 addresses.
func withOnlyIPv6(test func(t *testing.T, tc *testCluster)) func(t *testing.T, tc *testCluster) {
	return func(t *testing.T, tc *testCluster) {
		tc.overwriteChain(t, withoutIPv4(t, tc.chain()))
		tc.waitForConfiguration(t, func(list string) bool { return !strings.Contains(list, "0.0.0.0/0") })
		defer func() {
			tc.overwriteChain(t, tc.chain())
			tc.waitForConfiguration(t, func(list string) bool { return strings.Contains(list, "0.0.0.0/0") })
		}()
		test(t, tc)
	}
}

// withoutIPv4 returns a CNI configuration without IPv4 addresses and routes.
func withoutIPv4(t *testing.T, chain []byte) []byte {
	t.Helper()
	var list map[string]any
	if err := json.Unmarshal(chain, &list); err != nil {
		t.Fatal(err)
	}
	is4 := func(prefix any) bool { return netip.MustParsePrefix(prefix.(string)).Addr().Is4() }
	ipam := list["plugins"].([]any)[0].(map[string]any)["ipam"].(map[string]any)
	ipam["ranges"] = slices.DeleteFunc(ipam["ranges"].([]any), func(set any) bool {
		return is4(set.([]any)[0].(map[string]any)["subnet"])
	})
	ipam["routes"] = slices.DeleteFunc(ipam["routes"].([]any), func(route any) bool {
		return is4(route.(map[string]any)["dst"])
	})
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// waitForConfiguration waits until the runtime has loaded a CNI configuration that contains
// Sluice's plugin and satisfies matches.
func (tc *testCluster) waitForConfiguration(t *testing.T, matches func(list string) bool) {
	t.Helper()
	eventually(t, readyTimeout, "the runtime has loaded the configuration", func(ctx context.Context) error {
		text, err := tc.crictl(ctx, "info")
		if err != nil {
			return err
		}
		var info struct {
			CNIConfig struct {
				Networks []struct{ Config struct{ Source string } }
			}
		}
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			return err
		}
		for _, n := range info.CNIConfig.Networks {
			if list := n.Config.Source; strings.Contains(list, "sluice-cni") && matches(list) {
				return nil
			}
		}
		return errors.New(text)
	})
}

// mustHaveOnlyIPv6 fails the test unless the pod has a single address, of IPv6, and returns it.
func mustHaveOnlyIPv6(t *testing.T, pod *corev1.Pod) netip.Addr {
	t.Helper()
	ipv4, ipv6 := addresses(pod)
	if ipv4.IsValid() || !ipv6.IsValid() || len(pod.Status.PodIPs) != 1 {
		t.Fatalf("%s has the addresses %v, want a single IPv6 address", pod.Name, pod.Status.PodIPs)
	}
	return ipv6
}

func checkIPv6(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	a, b := mustHaveOnlyIPv6(t, pods[0]), mustHaveOnlyIPv6(t, pods[1])
	tc.mustReach(t, pods[0], url(b.String(), mesh.Port), path.Captured("b"))
	tc.mustReach(t, pods[1], url(a.String(), mesh.Port), path.Captured("a"))
	s := tc.newService(t, inIPv6(service(pods[1], corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	})))
	tc.mustReach(t, pods[0], url(s.Spec.ClusterIP, 80), path.Captured("b"))
}

func checkIPv6TProxy(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	tproxy := mesh.Sidecar{TProxy: true}
	pods := tc.run(t, mesh.Inject(mesh.Pod(ns, "a"), tproxy), mesh.Inject(mesh.Pod(ns, "b"), tproxy))
	want := path.Captured("b")
	want.Transparent = true
	tc.mustReach(t, pods[0], url(mustHaveOnlyIPv6(t, pods[1]).String(), mesh.Port), want)
}

func checkIPv6DNS(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	dns := dnsServer(ns)
	s := tc.newService(t, inIPv6(dnsService(dns)))
	a := withResolver(mesh.Inject(mesh.Pod(ns, "a"), mesh.Sidecar{Env: dnsCaptureEnv}), s)
	mustHaveOnlyIPv6(t, tc.run(t, dns, a)[1])
	for _, extra := range [][]string{nil, {"-tcp"}, {"-server", "[2001:db8::1]:53"}} {
		tc.mustResolve(t, a, "a", extra...)
	}
}

// inIPv6 makes a Service IPv6-only.
func inIPv6(s *corev1.Service) *corev1.Service {
	s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = new(corev1.IPFamilyPolicySingleStack),
		[]corev1.IPFamily{corev1.IPv6Protocol}
	return s
}
