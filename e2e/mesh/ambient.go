package mesh

import (
	_ "embed" // for the DaemonSet

	appsv1 "k8s.io/api/apps/v1"

	"github.com/sluice-mesh/sluice/e2e/embedded"
)

// Istio's label of pods and namespaces in ambient mode, and its annotation of pods that are
// redirected to ztunnel.
const (
	DataplaneLabel        = "istio.io/dataplane-mode"
	RedirectionAnnotation = "ambient.istio.io/redirection"
)

// ZtunnelName is the name of ztunnel's DaemonSet, and the value of the label app of its pods.
const ZtunnelName = "ztunnel"

//go:embed ztunnel.yaml
var ztunnelYAML []byte

// Ztunnel returns a DaemonSet of this module's ztunnel, with the privileges, socket directory and
// update strategy of Istio's DaemonSet.
func Ztunnel(namespace string) *appsv1.DaemonSet {
	d := embedded.Decode[*appsv1.DaemonSet](ztunnelYAML)
	d.Namespace = namespace
	return d
}
