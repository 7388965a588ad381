package mesh

import (
	_ "embed" // for the pod

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/embedded"
)

// Image is the name of the sample application's image, which must be loaded on the node.
const Image = "mesh.test/mesh:e2e"

// AppContainer is the name of the container with the application.
const AppContainer = "app"

// Ports of the application for HTTP.
const (
	Port      = 8080
	OtherPort = 9090
)

// NameLabel is the label whose value is the name of the pod.
const NameLabel = "mesh.test/name"

//go:embed pod.yaml
var podYAML []byte

// Pod returns a pod with the application, without a sidecar. It has a readiness probe.
func Pod(namespace, name string) *corev1.Pod {
	pod := embedded.Decode[*corev1.Pod](podYAML)
	pod.Namespace, pod.Name = namespace, name
	pod.Labels, pod.Annotations = map[string]string{NameLabel: name}, map[string]string{}
	return pod
}

// Container returns a container that runs the command mesh with arguments, as the application's
// user.
func Container(name string, args ...string) corev1.Container {
	c := embedded.Decode[*corev1.Pod](podYAML).Spec.Containers[0]
	c.Name, c.Args, c.ReadinessProbe = name, args, nil
	return c
}

// asProxy makes a container run as the proxy's user.
func asProxy(c corev1.Container) corev1.Container {
	c.SecurityContext.RunAsUser = new(int64(ProxyID))
	c.SecurityContext.RunAsGroup = new(int64(ProxyID))
	return c
}

// probe returns a probe that requests a path from a port of the pod every second.
func probe(path string, port int) *corev1.Probe {
	p := embedded.Decode[*corev1.Pod](podYAML).Spec.Containers[0].ReadinessProbe
	p.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}
	return p
}
