package suite_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// ambientNodes contains the tests of ambient mode that require two nodes.
var ambientNodes = testGroup{name: "ambient nodes", nodes: 2, tests: []groupTest{
	{
		"pods in ambient mode and pods with sidecars reach each other across two nodes, and pods in ambient mode use only HBONE between each other",
		checkAmbientTwoNodes,
	},
}}

// onlyHBONE is a ruleset for the TCP connections from one IPv4 address to another. It accepts and
// counts the packets of HBONE connections, and drops all other connections.
const onlyHBONE = `table inet e2e {
	chain forward {
		type filter hook forward priority 0
		ip saddr %[1]s ip daddr %[2]s tcp dport 15008 counter accept
		ip saddr %[1]s ip daddr %[2]s tcp flags & (syn | ack) == syn drop
	}
}`

func checkAmbientTwoNodes(t *testing.T, tc *testCluster) {
	tc.mustBeAmbient(t)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	var pods []*corev1.Pod
	for i, n := range tc.Nodes()[:2] {
		pods = append(pods, onNode(n, mesh.Pod(ns, fmt.Sprintf("ambient-%d", i))),
			onNode(n, mesh.Inject(mesh.Pod(ns, fmt.Sprintf("sidecar-%d", i)), mesh.Sidecar{Env: dualStackEnv})))
	}
	pods = tc.run(t, pods...)
	a, sidecar, b, otherSidecar := pods[0], pods[1], pods[2], pods[3]
	tc.waitAnnotated(t, "enabled", a, b)
	tc.mustConfigureZtunnel(t, a, b)
	from, _ := addresses(a)
	to, _ := addresses(b)
	load := tc.node().Command(t.Context(), "nft", "-f", "-")
	load.Stdin = strings.NewReader(fmt.Sprintf(onlyHBONE, from, to))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load the ruleset: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if _, err := tc.onNode(context.Background(), "nft", "delete", "table", "inet", "e2e"); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		from, to *corev1.Pod
		want     path.Expected
	}{
		{a, b, throughZtunnel(b.Name)},
		{b, a, throughZtunnel(a.Name)},
		{a, otherSidecar, path.Captured(otherSidecar.Name)},
		{sidecar, b, throughZtunnel(b.Name)},
		{sidecar, otherSidecar, path.Captured(otherSidecar.Name)},
	} {
		ipv4, ipv6 := addresses(c.to)
		tc.mustReach(t, c.from, url(ipv4.String(), mesh.Port), c.want)
		tc.mustReach(t, c.from, url(ipv6.String(), mesh.Port), c.want)
	}
	out, err := tc.onNode(t.Context(), "nft", "list", "table", "inet", "e2e")
	if err != nil || strings.Contains(out, "counter packets 0 ") {
		t.Errorf("counter of HBONE packets, want more than 0: error %v: %s", err, out)
	}
	tc.mustStopZtunnel(t)
}

// mustConfigureZtunnel restarts ztunnel with the addresses of the pods, because package
// mesh's ztunnel does not learn the addresses of pods on other nodes.
func (tc *testCluster) mustConfigureZtunnel(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	var prefixes []string
	for _, p := range pods {
		ipv4, ipv6 := addresses(p)
		for _, a := range []netip.Addr{ipv4, ipv6} {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	d, err := tc.client.AppsV1().DaemonSets(agentNamespace).Get(t.Context(), mesh.ZtunnelName, metav1.GetOptions{})
	if err == nil {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Args = append(c.Args, "-mesh", strings.Join(prefixes, ","))
		_, err = tc.client.AppsV1().DaemonSets(agentNamespace).Update(t.Context(), d, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, readyTimeout, "ztunnel is restarted", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, mesh.ZtunnelName)
	})
}
