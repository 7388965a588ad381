package mesh

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Image is the name of the sample application's image, which must be loaded on the node.
const Image = "mesh.test/mesh:e2e"

// AppContainer is the name of the container with the application.
const AppContainer = "app"

// Ports of the application: two for HTTP and one for UDP.
const (
	Port      = 8080
	OtherPort = 9090
	udpPort   = 7000
)

// NameLabel is the label whose value is the name of the pod.
const NameLabel = "mesh.test/name"

// appUser is the UID and GID of the application.
const appUser = 1000

// Pod returns a pod with the application, without a sidecar. It has a readiness probe.
func Pod(namespace, name string) *corev1.Pod {
	app := Container(AppContainer, "serve", "-tcp", "8080,9090", "-udp", "7000")
	app.ReadinessProbe = probe("/ready", Port)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{NameLabel: name},
			Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{app},
			TerminationGracePeriodSeconds: new(int64(2)),
			AutomountServiceAccountToken:  new(bool),
			EnableServiceLinks:            new(bool),
		},
	}
}

// Container returns a container that runs the command mesh with arguments, as the application's
// user.
func Container(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: Image, ImagePullPolicy: corev1.PullNever,
		Command: []string{"mesh"}, Args: args,
		Env: []corev1.EnvVar{{
			Name: "POD_NAME",
			ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
			},
		}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          unprivileged(appUser),
	}
}

// unprivileged returns the security context of a user without capabilities.
func unprivileged(id int64) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: new(id), RunAsGroup: new(id), RunAsNonRoot: new(true),
		ReadOnlyRootFilesystem:   new(true),
		AllowPrivilegeEscalation: new(bool),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// probe returns a probe that requests a path from a port of the pod every second.
func probe(path string, port int) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt(port),
		}},
		PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: 60,
	}
}
