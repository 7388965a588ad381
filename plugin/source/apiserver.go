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
	// Kubeconfig is the path of the kubeconfig file. Its current context is used, with certificate
	// authority, token, token file and client certificate, embedded or in files. Credential
	// plugins, passwords and impersonation are refused.
	Kubeconfig string
	// Budget bounds all requests and pauses for one object. It is 10 s if it is not positive.
	Budget time.Duration
	// Try bounds one request, and half of it the connection. It is 4 s if it is not positive.
	Try time.Duration
	// Dial connects as [net.Dialer.DialContext] does. nil connects by TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o *Options) budget() time.Duration { return positive(o.Budget, 10*time.Second) }

func (o *Options) try() time.Duration { return positive(o.Try, 4*time.Second) }

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// APIServer is a [Source] that reads from the API server of Kubernetes. It is safe for concurrent
// use.
type APIServer struct {
	options Options

	mu     sync.Mutex
	client *client // nil until it is needed, and after the server refused its credentials
}

// NewAPIServer returns a source that reads its kubeconfig at the first request, and again after the
// API server has refused its credentials. Call Close after use.
func NewAPIServer(options Options) *APIServer { return &APIServer{options: options} }

// Close implements [Source].
func (a *APIServer) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop()
}

// Pod implements [Source]. It repeats the request until it gets the pod with the UID or a final
// error (see [NotFound], [Unauthorized], [Forbidden], [Misconfigured]), or until the budget is used
// up.
func (a *APIServer) Pod(ctx context.Context, ref Ref) (*decide.Pod, error) {
	subject := "pod " + ref.Shown()
	if !ref.valid() {
		return nil, WithKind(NotFound,
			fmt.Errorf("pod %q in namespace %q: no names that Kubernetes allows", ref.Name,
				ref.Namespace))
	}
	var pod *decide.Pod
	err := a.ask(ctx, subject, podPath(ref), func(body []byte) *requestError {
		var answer struct {
			object
			decide.Pod
		}
		if t := answer.decode(body, &answer, "Pod"); t != nil {
			return t
		}
		if t := named(&answer.Metadata, ref.Namespace, ref.Name); t != nil {
			return t
		}
		if ref.UID != "" && !answer.HasUID(ref.UID) {
			err := fmt.Errorf("the pod of that name has the UID %s and not %s: it replaced the one that is asked for",
				shortQuote(answer.Metadata.UID), shortQuote(ref.UID))
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
	if !(Ref{Namespace: name, Name: name}).valid() {
		return nil, WithKind(NotFound,
			fmt.Errorf("namespace %q: no name that Kubernetes allows", name))
	}
	var namespace *decide.Namespace
	err := a.ask(ctx, subject, namespacePath(name), func(body []byte) *requestError {
		var answer struct {
			object
			decide.Namespace
		}
		if t := answer.decode(body, &answer, "Namespace"); t != nil {
			return t
		}
		if t := named(&answer.Metadata, "", name); t != nil {
			return t
		}
		namespace = &answer.Namespace
		return nil
	})
	return namespace, err
}

// Ready implements [Source]: the kubeconfig is valid, the API server answers, and the credentials
// suffice. It reads a pod that cannot exist. The API server may forbid that to the credentials of a
// kubelet, which may read only pods of its node.
func (a *APIServer) Ready(ctx context.Context) error {
	const impossible = "-"
	ctx, cancel := context.WithTimeout(ctx, a.options.try())
	defer cancel()
	c, err := a.connect()
	if err != nil {
		return err
	}
	_, t := c.get(ctx, podPath(Ref{Namespace: "default", Name: impossible}))
	if t == nil || t.kind == NotFound {
		return nil
	}
	return WithKind(t.kind, fmt.Errorf("API server %s: %w", c.server.Host, line{t.err}))
}

// connect returns the client, and reads the kubeconfig if there is none yet.
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

// drop removes the client. The caller holds the mutex.
func (a *APIServer) drop() {
	if a.client != nil {
		a.client.transport.CloseIdleConnections()
		a.client = nil
	}
}
