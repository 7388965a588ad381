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

// ipv6 is proved with pods whose network has no IPv4, as on nodes of IPv6 alone.
var ipv6 = part{name: "IPv6 alone", proofs: []proof{
	{
		"pods with only an IPv6 address reach each other and Services through both proxies",
		withIPv6Alone(provesIPv6),
	},
	{
		"TPROXY carries requests between pods with only an IPv6 address, and keeps the caller's",
		withIPv6Alone(provesIPv6TProxy),
	},
	{
		"DNS queries of pods with only an IPv6 address go to the agent beside the proxy",
		withIPv6Alone(provesIPv6DNS),
	},
}}

// withIPv6Alone proves while the node's configuration gives pods only an address of IPv6.
func withIPv6Alone(prove func(t *testing.T, w *world)) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) {
		w.overwriteChain(t, withoutIPv4(t, w.chain()))
		w.mustHaveRead(t, func(list string) bool { return !strings.Contains(list, "0.0.0.0/0") })
		defer func() {
			w.overwriteChain(t, w.chain())
			w.mustHaveRead(t, func(list string) bool { return strings.Contains(list, "0.0.0.0/0") })
		}()
		prove(t, w)
	}
}

// withoutIPv4 is a configuration of which the pods get no address of IPv4, nor a route.
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

// mustHaveRead waits until the runtime has read a configuration with our element that is as it
// should be.
func (w *world) mustHaveRead(t *testing.T, is func(list string) bool) {
	t.Helper()
	eventually(t, readyTime, "the runtime has read the configuration", func(ctx context.Context) error {
		text, err := w.crictl(ctx, "info")
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
			if list := n.Config.Source; strings.Contains(list, "sluice-cni") && is(list) {
				return nil
			}
		}
		return errors.New(text)
	})
}

// mustHaveIPv6Alone returns the pod's one address.
func mustHaveIPv6Alone(t *testing.T, pod *corev1.Pod) netip.Addr {
	t.Helper()
	four, six := addresses(pod)
	if four.IsValid() || !six.IsValid() || len(pod.Status.PodIPs) != 1 {
		t.Fatalf("%s has the addresses %v", pod.Name, pod.Status.PodIPs)
	}
	return six
}

func provesIPv6(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), inMesh(ns, "b"))
	a, b := mustHaveIPv6Alone(t, pods[0]), mustHaveIPv6Alone(t, pods[1])
	w.mustGo(t, pods[0], url(b.String(), mesh.Port), path.Captured("b"))
	w.mustGo(t, pods[1], url(a.String(), mesh.Port), path.Captured("a"))
	s := w.newService(t, inIPv6(service(pods[1], corev1.ServicePort{
		Port: 80, TargetPort: intstr.FromInt(mesh.Port),
	})))
	w.mustGo(t, pods[0], url(s.Spec.ClusterIP, 80), path.Captured("b"))
}

func provesIPv6TProxy(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	tproxy := mesh.Sidecar{TProxy: true}
	pods := w.run(t, mesh.Inject(mesh.Pod(ns, "a"), tproxy), mesh.Inject(mesh.Pod(ns, "b"), tproxy))
	way := path.Captured("b")
	way.Transparent = true
	w.mustGo(t, pods[0], url(mustHaveIPv6Alone(t, pods[1]).String(), mesh.Port), way)
}

func provesIPv6DNS(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	dns := dnsServer(ns)
	s := w.newService(t, inIPv6(dnsService(dns)))
	a := withResolver(mesh.Inject(mesh.Pod(ns, "a"), mesh.Sidecar{Env: captureDNS}), s)
	mustHaveIPv6Alone(t, w.run(t, dns, a)[1])
	for _, more := range [][]string{nil, {"-tcp"}, {"-server", "[2001:db8::1]:53"}} {
		w.mustResolve(t, a, "a", more...)
	}
}

// inIPv6 gives a Service an address of IPv6 alone.
func inIPv6(s *corev1.Service) *corev1.Service {
	s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = new(corev1.IPFamilyPolicySingleStack),
		[]corev1.IPFamily{corev1.IPv6Protocol}
	return s
}
