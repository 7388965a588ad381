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

// A daemonSet is the only object of a fake cluster, for the lookup function of templates.
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
	return clientOf(o, apiVersion, kind), true, nil
}

// clientOf returns the client of a cluster with a single object.
func clientOf(
	o *unstructured.Unstructured, apiVersion, kind string,
) dynamic.NamespaceableResourceInterface {
	resource := schema.FromAPIVersionAndKind(apiVersion, kind).GroupVersion().WithResource(
		strings.ToLower(kind) + "s")
	return fake.NewSimpleDynamicClient(runtime.NewScheme(), o).Resource(resource)
}

// Helm deletes objects that a new chart does not contain, and istio-cni uninstalls itself when its
// pods terminate.
func TestIstioCNIIsNotUpgradedInPlace(t *testing.T) {
	istioCNI := daemonSet{deploy.Namespace, "istio-cni-node", "istio-cni"}
	for _, c := range []struct {
		reason  string
		cluster daemonSet
		release string // the release to upgrade
		refused bool
	}{
		{"istio-cni's own release", istioCNI, "istio-cni", true},
		{
			"istio-cni's release with another name",
			daemonSet{deploy.Namespace, "istio-cni-node", "mesh-cni"},
			"mesh-cni", true,
		},
		{"upgrade of Sluice while istio-cni is installed", istioCNI, "sluice", false},
		{"installation while istio-cni is installed", istioCNI, "", false},
		{
			"release of the same name in another namespace",
			daemonSet{"other", "istio-cni-node", "istio-cni"},
			"istio-cni", false,
		},
		{
			"installation with the release name of the installed istio-cni",
			daemonSet{deploy.Namespace, "istio-cni-node", "sluice"},
			"", false,
		},
		{
			"istio-cni installed by istioctl",
			daemonSet{deploy.Namespace, "istio-cni-node", ""},
			"sluice", false,
		},
		{
			"upgrade of Sluice with istio-cni's release name",
			daemonSet{deploy.Namespace, "sluice-node", "istio-cni"},
			"istio-cni", false,
		},
	} {
		for _, scope := range []string{"all", "cluster", "namespace"} {
			_, err := deploy.Render(parse(t, "global: {resourceScope: "+scope+"}"),
				deploy.Options{UpgradedRelease: c.release, Cluster: c.cluster})
			if refused := err != nil; refused != c.refused {
				t.Errorf("%s, scope %s: refused %t, want %t; error %v", c.reason, scope, refused,
					c.refused, err)
			}
			for _, want := range []string{
				"the DaemonSet istio-system/istio-cni-node", "run without redirection",
				"\n  helm install sluice CHART -n istio-system --wait -f VALUES\n" +
					"  helm uninstall " + c.release + " -n istio-system",
			} {
				if c.refused && err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: want %q in: %v", c.reason, want, err)
				}
			}
		}
	}
}

// The chart can be rendered without a cluster.
func TestUpgradeWithoutACluster(t *testing.T) {
	if _, err := deploy.Render(nil, deploy.Options{UpgradedRelease: "istio-cni"}); err != nil {
		t.Error(err)
	}
}
