package source

import (
	"context"
	"strings"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// A Source returns pods and namespaces. Implementations are safe for concurrent use, and return
// soon after the context is done. Their errors have a [Kind].
type Source interface {
	// Pod returns the pod, which the caller may change.
	Pod(ctx context.Context, ref Ref) (*decide.Pod, error)
	// Namespace returns the namespace with its labels. The plugin reads it only for a selector of
	// namespaces.
	Namespace(ctx context.Context, name string) (*decide.Namespace, error)
	// Ready returns an error if pods cannot be read now. It does not repeat a failed request.
	Ready(ctx context.Context) error
	// Close closes idle connections. The source can still be used.
	Close()
}

// A Ref names the pod of a sandbox, as the container runtime does in CNI_ARGS.
type Ref struct {
	// Namespace and Name are K8S_POD_NAMESPACE and K8S_POD_NAME.
	Namespace, Name string
	// UID is K8S_POD_UID. A pod with the same name and another UID is another pod, because
	// StatefulSets reuse names. Static pods have the kubelet's UID: see [decide.Pod.HasUID]. Old
	// runtimes leave the UID empty; then any pod with the name is accepted.
	UID string
}

// String returns namespace and name as kubectl prints them.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// maxShown limits the length of namespace and name in a message. They may have 63 and 253 bytes.
const maxShown = 64

// Shown returns namespace and name for messages. Long names are truncated.
func (r Ref) Shown() string { return text.Truncate(r.String(), maxShown) }

// isValid reports whether Kubernetes allows the names. Other names must not reach a URL.
func (r Ref) isValid() bool {
	return isValidName(r.Namespace, 63) && !strings.Contains(r.Namespace, ".") &&
		isValidName(r.Name, 253)
}

// isValidName reports whether the name is a DNS subdomain as Kubernetes defines it (RFC 1123).
func isValidName(name string, maxLen int) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, "-") != label {
			return false
		}
	}
	return len(name) <= maxLen && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
	})
}
