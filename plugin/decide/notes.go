package decide

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A Note is a hint about a redirection for the owner of the pod. It is not an error.
type Note struct {
	Kind NoteKind
	// Message is a lower-case sentence without a full stop.
	Message string
}

// NoteKind is a stable word for logs and metrics.
type NoteKind string

// The kinds of notes.
const (
	// IPv6Uncaptured: the pod has an IPv6 address, and its IPv6 traffic bypasses the proxy.
	IPv6Uncaptured NoteKind = "ipv6-uncaptured"
	// VariableUnread: the value of a relevant variable comes from a source that is not read, such
	// as a ConfigMap.
	VariableUnread NoteKind = "variable-unread"
	// VariableOfIstioInit: a variable of the proxy has the effect that it has with istio-init.
	// istio-cni does not read it.
	VariableOfIstioInit NoteKind = "variable-of-istio-init"
	// NamesUnresolved: an argument or a variable contains names of users or groups. Only the
	// container's image defines their ids, so the value has no effect.
	NamesUnresolved NoteKind = "names-unresolved"
	// ArgumentUnknown: the validation container has an unknown argument, perhaps of a newer Istio.
	ArgumentUnknown NoteKind = "argument-unknown"
	// AllDNSCaptured: CAPTURE_ALL_DNS is false, but the DNS queries to all servers are captured,
	// because the pod's nameservers are not known when its rules are made.
	AllDNSCaptured NoteKind = "all-dns-captured"
	// InitContainersCaptured: init containers run before the proxy, but their traffic is redirected
	// to the proxy.
	InitContainersCaptured NoteKind = "init-containers-captured"
	// ApplicationUncaptured: a container other than the proxy runs as the proxy's user or group,
	// and its outbound connections bypass the proxy.
	ApplicationUncaptured NoteKind = "application-uncaptured"
	// AnnotationIgnored: an annotation is ignored, because its value is not allowed. It is an
	// annotation of ambient mode, whose invalid values Istio ignores too, or one that Istio does
	// not have.
	AnnotationIgnored NoteKind = "annotation-ignored"
)

// String returns the kind and the message on one line.
func (n Note) String() string { return fmt.Sprintf("%s: %s", n.Kind, n.Message) }

// note adds a note.
func (r *result) note(kind NoteKind, format string, args ...any) {
	r.notes = append(r.notes, Note{kind, fmt.Sprintf(format, args...)})
}

// noteIgnored adds a note about an annotation whose value is not allowed.
func (r *result) noteIgnored(source, value, allowed string) {
	r.note(AnnotationIgnored, "%s is ignored: %s is not %s", source, quote(value), allowed)
}

// noteIPv6 adds a note if the pod has an IPv6 address and IPv6 is not captured.
func (r *result) noteIPv6(addresses []netip.Addr) {
	if i := slices.IndexFunc(addresses, netip.Addr.Is6); i >= 0 && !r.Redirect.IPv6 {
		r.note(IPv6Uncaptured,
			"the pod's IPv6 is not captured: it has %s in addition to an IPv4 address,"+
				" and ISTIO_DUAL_STACK is not set",
			addresses[i])
	}
}

// noteArguments adds a note about unknown arguments of the validation container.
func (r *result) noteArguments(s *sources) {
	if names := s.arguments.Unknown; len(names) > 0 {
		r.note(ArgumentUnknown, "arguments of container %s that are not known have no effect: %s",
			s.validation.Name, shortList(names))
	}
}

// noteVariables adds a note about variables that istio-cni would not read.
func (r *result) noteVariables() {
	if len(r.ofIstioInit) > 0 {
		r.note(VariableOfIstioInit, "variables of the proxy that istio-cni ignores have the effect that "+
			"they have with istio-init: %s", shortList(r.ofIstioInit))
	}
}

// noteInitContainers adds a note that names the init containers that run before the proxy, except
// the validation container and containers that run as the proxy's user. A proxy that is a native
// sidecar runs before the init containers that follow it.
func (r *result) noteInitContainers(s *sources) {
	var names []string
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		if c == s.proxy && c.RestartPolicy == restartAlways {
			break
		}
		if c != s.proxy && c != s.validation && !r.isProxyUser(c, s.pod) {
			names = append(names, c.Name)
		}
	}
	if len(names) > 0 {
		r.note(InitContainersCaptured,
			"traffic of init containers is captured before the proxy runs,"+
				" unless they run as the proxy's user: %s",
			shortList(names))
	}
}

// noteApplication adds a note that names the containers other than the proxy that run as the
// proxy's user or group.
func (r *result) noteApplication(s *sources) {
	var names []string
	for i := range s.pod.Spec.Containers {
		c := &s.pod.Spec.Containers[i]
		if c != s.proxy && (r.isProxyUser(c, s.pod) ||
			inRanges(containerContextID("runAsGroup", c, s.pod), r.Redirect.ProxyGIDs)) {
			names = append(names, c.Name)
		}
	}
	if len(names) > 0 {
		r.note(ApplicationUncaptured,
			"outbound connections of containers that run as the proxy's user or group"+
				" are not captured: %s",
			shortList(names))
	}
}

// isProxyUser reports whether a container runs as the proxy's user, whose traffic is not captured.
func (r *result) isProxyUser(c *Container, pod *Pod) bool {
	return inRanges(containerContextID("runAsUser", c, pod), r.Redirect.ProxyUIDs)
}

// containerContextID returns the field runAsUser or runAsGroup of a container, or else of its pod.
func containerContextID(name string, c *Container, pod *Pod) *int64 {
	return cmp.Or(contextID(name, c.SecurityContext), contextID(name, pod.Spec.SecurityContext))
}

// inRanges reports whether an id is known and in one of the ranges.
func inRanges(id *int64, ranges []rules.IDRange) bool {
	return id != nil && slices.ContainsFunc(ranges, func(ids rules.IDRange) bool {
		return int64(ids.First) <= *id && *id <= int64(ids.Last)
	})
}
