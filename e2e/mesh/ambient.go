package mesh

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Istio's label of pods and namespaces in ambient mode, and its annotation of pods that are
// redirected to ztunnel.
const (
	DataplaneLabel        = "istio.io/dataplane-mode"
	RedirectionAnnotation = "ambient.istio.io/redirection"
)

// ZtunnelName is the name of ztunnel's DaemonSet, and the value of the label app of its pods.
const ZtunnelName = "ztunnel"

// Ztunnel returns a DaemonSet of this module's ztunnel, with the privileges, socket directory and
// update strategy of Istio's DaemonSet.
func Ztunnel(namespace string) *appsv1.DaemonSet {
	labels := map[string]string{
		"app": ZtunnelName, InjectKey: "false", DataplaneLabel: "none",
	}
	const run = "/var/run/ztunnel"
	c := Container(ProxyContainer, "ztunnel", "-ready", ":15021")
	c.SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(ProxyID)), RunAsNonRoot: new(bool),
		ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(true),
		Capabilities: &corev1.Capabilities{
			Drop: []corev1.Capability{"ALL"},
			Add:  []corev1.Capability{"NET_ADMIN", "SYS_ADMIN", "NET_RAW"},
		},
	}
	c.ReadinessProbe = probe("/", proxyReadyPort)
	c.VolumeMounts = []corev1.VolumeMount{{Name: "run", MountPath: run}}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ZtunnelName},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": ZtunnelName}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{
					MaxSurge: new(intstr.FromInt(1)), MaxUnavailable: new(intstr.FromInt(0)),
				},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{c},
					Tolerations: []corev1.Toleration{{
						Operator: corev1.TolerationOpExists,
					}},
					PriorityClassName:             "system-node-critical",
					TerminationGracePeriodSeconds: new(int64(5)),
					AutomountServiceAccountToken:  new(bool),
					EnableServiceLinks:            new(bool),
					Volumes: []corev1.Volume{{
						Name: "run",
						VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
							Path: run, Type: new(corev1.HostPathDirectoryOrCreate),
						}},
					}},
				},
			},
		},
	}
}
