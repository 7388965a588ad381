package deploy_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/sluice-mesh/sluice/e2e/deploy"
)

// A daemonSet is the only object of a cluster, for templates that look something up.
type daemonSet struct{ namespace, name, release string }

// GetClientFor implements Helm's ClientProvider.
func (d daemonSet) GetClientFor(
	apiVersion, kind string,
) (dynamic.NamespaceableResourceInterface, bool, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind("apps/v1", "DaemonSet"))
	o.SetNamespace(d.namespace)
	o.SetName(d.name)
	if d.release != "" {
		o.SetAnnotations(map[string]string{
			"meta.helm.sh/release-name": d.release, "meta.helm.sh/release-namespace": d.namespace,
		})
	}
	return only(o, apiVersion, kind), true, nil
}

// only returns the client for a kind of object, of which the cluster has one.
func only(
	o *unstructured.Unstructured, apiVersion, kind string,
) dynamic.NamespaceableResourceInterface {
	asked := schema.FromAPIVersionAndKind(apiVersion, kind).GroupVersion().WithResource(
		strings.ToLower(kind) + "s")
	return fake.NewSimpleDynamicClient(runtime.NewScheme(), o).Resource(asked)
}

// Helm deletes what a new chart does not have, and istio-cni leaves the nodes as soon as its pods
// are told to stop.
func TestIstioCNIIsNotUpgradedInPlace(t *testing.T) {
	theirs := daemonSet{deploy.Namespace, "istio-cni-node", "istio-cni"}
	for _, c := range []struct {
		why     string
		cluster daemonSet
		release string // that is upgraded
		refused bool
	}{
		{"istio-cni's own release", theirs, "istio-cni", true},
		{
			"istio-cni's own release by another name",
			daemonSet{deploy.Namespace, "istio-cni-node", "mesh-cni"},
			"mesh-cni", true,
		},
		{"an upgrade of ours beside istio-cni", theirs, "sluice", false},
		{"an installation beside istio-cni", theirs, "", false},
		{
			"a release of the same name in another namespace",
			daemonSet{"other", "istio-cni-node", "istio-cni"},
			"istio-cni", false,
		},
		{
			"an installation beside an istio-cni whose release is lost",
			daemonSet{deploy.Namespace, "istio-cni-node", "sluice"},
			"", false,
		},
		{
			"istio-cni that istioctl has installed",
			daemonSet{deploy.Namespace, "istio-cni-node", ""},
			"sluice", false,
		},
		{
			"an upgrade of ours by istio-cni's name",
			daemonSet{deploy.Namespace, "sluice-node", "istio-cni"},
			"istio-cni", false,
		},
	} {
		for _, scope := range []string{"all", "cluster", "namespace"} {
			_, err := deploy.Render(parse(t, "global: {resourceScope: "+scope+"}"),
				deploy.Options{Upgraded: c.release, Cluster: c.cluster})
			if (err != nil) != c.refused {
				t.Errorf("%s, scope %s: %v", c.why, scope, err)
			}
			for _, want := range []string{
				"the DaemonSet istio-system/istio-cni-node", "run without redirection",
				"\n  helm install sluice CHART -n istio-system --wait -f VALUES\n  helm uninstall " + c.release + " -n istio-system",
			} {
				if c.refused && err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q is not in: %v", c.why, want, err)
				}
			}
		}
	}
}

// Without a cluster the chart is rendered all the same.
func TestUpgradeWithoutACluster(t *testing.T) {
	if _, err := deploy.Render(nil, deploy.Options{Upgraded: "istio-cni"}); err != nil {
		t.Error(err)
	}
}
