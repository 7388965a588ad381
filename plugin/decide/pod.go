package decide

import (
	"cmp"
	"net/netip"
	"slices"
)

// A Pod has the fields of a Kubernetes pod that Sluice needs. The JSON of a v1 Pod decodes into it.
type Pod struct {
	Metadata Metadata  `json:"metadata"`
	Spec     PodSpec   `json:"spec"`
	Status   PodStatus `json:"status"`
}

// Metadata is the metadata of a pod or a namespace.
type Metadata struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// PodSpec is the specification of a pod.
type PodSpec struct {
	HostNetwork bool `json:"hostNetwork"`
	// ServiceAccountName is passed to ztunnel.
	ServiceAccountName string           `json:"serviceAccountName,omitempty"`
	InitContainers     []Container      `json:"initContainers"`
	Containers         []Container      `json:"containers"`
	SecurityContext    *SecurityContext `json:"securityContext"`
}

// PodStatus has the pod's addresses. They are not known yet during ADD.
type PodStatus struct {
	PodIP  string  `json:"podIP"`
	PodIPs []PodIP `json:"podIPs"`
}

// PodIP is one address of a pod.
type PodIP struct {
	IP string `json:"ip"`
}

// Container is a container or an init container.
type Container struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	Env  []EnvVar `json:"env"`
	// RestartPolicy is Always for an init container that keeps running: a native sidecar.
	RestartPolicy   string           `json:"restartPolicy"`
	SecurityContext *SecurityContext `json:"securityContext"`
}

// EnvVar is an environment variable of a container.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// ValueFrom is not nil if the value comes from another object. The value is then unknown.
	ValueFrom *ValueSource `json:"valueFrom"`
}

// ValueSource represents any source of a variable's value.
type ValueSource struct{}

// SecurityContext has the user and group of a container, or of all containers of a pod. A nil field
// is unset.
type SecurityContext struct {
	RunAsUser  *int64 `json:"runAsUser"`
	RunAsGroup *int64 `json:"runAsGroup"`
}

// A Namespace has the fields of a Kubernetes namespace that a decision needs. The JSON of a v1
// Namespace decodes into it.
type Namespace struct {
	Metadata Metadata `json:"metadata"`
}

// restartAlways is the restart policy of a native sidecar.
const restartAlways = "Always"

// mirrorAnnotation marks a mirror pod, which is the API server's copy of a static pod. Its value is
// the kubelet's UID of the static pod: the hash of the pod's configuration.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// HasUID reports whether uid is the pod's UID in the API server or, for a static pod, in the
// kubelet. It returns false for an empty uid.
func (p *Pod) HasUID(uid string) bool {
	return uid != "" && (p.Metadata.UID == uid || p.ConfigHash() == uid)
}

// ConfigHash returns the kubelet's UID of a static pod, and an empty string for other pods. The UID
// is the value of an annotation. A user can create a pod with this annotation and the UID of
// another pod; the kubelet deletes such a pod without starting it.
func (p *Pod) ConfigHash() string { return p.Metadata.Annotations[mirrorAnnotation] }

// IsInjected reports whether the injector has added a sidecar to the pod.
func (p *Pod) IsInjected() bool {
	_, injected := p.Metadata.Annotations[statusAnnotation]
	return injected
}

// Addresses returns the valid addresses of the pod's status in their order, without duplicates.
func (p *Pod) Addresses() []netip.Addr {
	var addresses []netip.Addr
	for _, ip := range append([]PodIP{{p.Status.PodIP}}, p.Status.PodIPs...) {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// container returns the container or init container with the name, or nil.
func (p *Pod) container(name string) *Container {
	for _, containers := range [][]Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

// variable returns the environment variable with the name, or nil. If several variables have the
// name, it returns the last one, which the kubelet uses. c may be nil.
func (c *Container) variable(name string) *EnvVar {
	if c == nil {
		return nil
	}
	for i := range slices.Backward(c.Env) {
		if c.Env[i].Name == name {
			return &c.Env[i]
		}
	}
	return nil
}

// proxy returns the container of the proxy, or nil.
func (p *Pod) proxy(s *Settings) *Container { return p.container(s.proxyContainer()) }

// proxyContainer returns the name of the proxy's container.
func (s *Settings) proxyContainer() string { return cmp.Or(s.ProxyContainer, "istio-proxy") }
