package source

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// Options configure an [APIServer].
type Options struct {
	// Kubeconfig is the path of the kubeconfig file. The cluster and the user of its current
	// context are used. The certificate authority, the token and the client certificate may be
	// embedded or in files. Credential plugins, passwords and impersonation are refused.
	Kubeconfig string
	// Timeout limits the time of all requests for one object, including the delays between them. A
	// value that is not positive means 10 s.
	Timeout time.Duration
	// RequestTimeout limits one request. Half of it limits the TLS handshake and, unless Dial is
	// set, connecting by TCP. A value that is not positive means 4 s.
	RequestTimeout time.Duration
	// Dial connects as [net.Dialer.DialContext] does. If it is nil, a [net.Dialer] connects.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// APIServer is a [Source] that reads from the API server of Kubernetes. It is safe for concurrent
// use.
type APIServer struct {
	options Options

	mu     sync.Mutex
	client *client // nil if the next request must read the kubeconfig
}

// NewAPIServer returns a source that reads its kubeconfig at the first request. It reads the
// kubeconfig again after Close, and after Pod or Namespace has failed with [Unauthorized]. Call
// Close after use.
func NewAPIServer(o Options) *APIServer {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 4 * time.Second
	}
	return &APIServer{options: o}
}

// Close implements [Source].
func (a *APIServer) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		a.client.transport.CloseIdleConnections()
		a.client = nil
	}
}

// Pod implements [Source]. It repeats the request until it gets the pod with the UID, or an error
// that a further request would not change, or until the timeout. Errors of the kinds [NotFound],
// [Unauthorized], [Forbidden] and [Misconfigured] end the requests, and so do some of the kind
// [Unavailable], such as an answer that is too large.
func (a *APIServer) Pod(ctx context.Context, ref Ref) (*decide.Pod, error) {
	subject := "pod " + ref.Shown()
	if !ref.isValid() {
		return nil, WithKind(NotFound,
			fmt.Errorf("pod %q in namespace %q: not names that Kubernetes allows", ref.Name,
				ref.Namespace))
	}
	var pod *decide.Pod
	err := a.getWithRetry(ctx, subject, podPath(ref), func(body []byte) *requestError {
		var answer struct {
			object
			decide.Pod
		}
		if failure := answer.decode(body, &answer, "Pod"); failure != nil {
			return failure
		}
		if failure := checkName(&answer.Metadata, ref.Namespace, ref.Name); failure != nil {
			return failure
		}
		if ref.UID != "" && !answer.HasUID(ref.UID) {
			const format = "the pod with this name has UID %s, not %s: it replaced the requested pod"
			err := fmt.Errorf(format, shortQuote(answer.Metadata.UID), shortQuote(ref.UID))
			return &requestError{kind: Replaced, err: err}
		}
		pod = &answer.Pod
		return nil
	})
	return pod, err
}

// Namespace implements [Source], by the same rules as Pod.
func (a *APIServer) Namespace(ctx context.Context, name string) (*decide.Namespace, error) {
	subject := fmt.Sprintf("namespace %s", name)
	if !(Ref{Namespace: name, Name: name}).isValid() {
		return nil, WithKind(NotFound,
			fmt.Errorf("namespace %q: not a name that Kubernetes allows", name))
	}
	var namespace *decide.Namespace
	err := a.getWithRetry(ctx, subject, namespacePath(name), func(body []byte) *requestError {
		var answer struct {
			object
			decide.Namespace
		}
		if failure := answer.decode(body, &answer, "Namespace"); failure != nil {
			return failure
		}
		if failure := checkName(&answer.Metadata, "", name); failure != nil {
			return failure
		}
		namespace = &answer.Namespace
		return nil
	})
	return namespace, err
}

// Ready implements [Source]. It returns nil if the kubeconfig is valid, the API server answers, and
// the credentials suffice. It requests a pod that cannot exist. With the credentials of a kubelet,
// which may read only the pods of its node, the error may have the kind [Forbidden] although pods
// can be read.
func (a *APIServer) Ready(ctx context.Context) error {
	const impossible = "-"
	ctx, cancel := context.WithTimeout(ctx, a.options.RequestTimeout)
	defer cancel()
	c, err := a.connect()
	if err != nil {
		return err
	}
	_, failure := c.get(ctx, podPath(Ref{Namespace: "default", Name: impossible}))
	if failure == nil || failure.kind == NotFound {
		return nil
	}
	return WithKind(failure.kind,
		fmt.Errorf("API server %s: %w", c.server.Host, singleLine{failure.err}))
}

// connect returns the client, and reads the kubeconfig if there is no client.
func (a *APIServer) connect() (*client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		c, err := newClient(&a.options)
		if err != nil {
			return nil, WithKind(Misconfigured, err)
		}
		a.client = c
	}
	return a.client, nil
}
