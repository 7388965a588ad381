package source

import (
	"context"
	"strings"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// A Source knows pods and namespaces. Implementations are safe for concurrent use, and return soon after the context is done.
// Their errors have a [Kind].
type Source interface {
	// Pod returns the pod. It is a new one that the caller may change.
	Pod(ctx context.Context, ref Ref) (*decide.Pod, error)
	// Namespace returns the namespace with its labels. The plugin asks for it only if a selector does.
	Namespace(ctx context.Context, name string) (*decide.Namespace, error)
	// Ready tells by one try whether a pod could be read now.
	Ready(ctx context.Context) error
	// Close closes the connections that are kept for further questions. The source can still be used.
	Close()
}

// A Ref names the pod that a sandbox is made for, as the container runtime does in CNI_ARGS.
type Ref struct {
	// Namespace and Name are K8S_POD_NAMESPACE and K8S_POD_NAME.
	Namespace, Name string
	// UID is K8S_POD_UID. A pod of the same name with another UID is another pod: StatefulSets use names again. Static pods have
	// the UID that the kubelet gave them; see [decide.Pod.HasUID]. Runtimes too old to pass it leave it empty: any pod will do.
	UID string
}

// String returns namespace and name, as kubectl prints them.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// maxShown is how much of a pod's names, which may have 317 bytes, a message has.
const maxShown = 64

// Shown is the pod as messages name it, which have to come to the point: the beginning of long names must do.
func (r Ref) Shown() string { return text.Cut(r.String(), maxShown) }

// valid tells whether Kubernetes allows the names. Others cannot name anything, and must not reach a URL.
func (r Ref) valid() bool {
	return validName(r.Namespace, 63) && !strings.Contains(r.Namespace, ".") && validName(r.Name, 253)
}

// validName tells whether a name is a DNS subdomain as Kubernetes wants it (RFC 1123).
func validName(name string, longest int) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, "-") != label {
			return false
		}
	}
	return len(name) <= longest && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
	})
}
