package podcache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options are the options of a cache.
type Options struct {
	// Client sends the requests. Run closes its idle connections at the end.
	Client *apiclient.Client
	// NodeName is the node of the cached pods.
	NodeName string
	// Fetch provides objects that are not cached.
	Fetch source.Source
	// Changed, unless nil, is called with the name of each pod that was added, changed or removed.
	// After a new list it is called with empty names, because any pod may have changed. It must not
	// block.
	Changed func(namespace, name string)
	// NamespaceChanged, unless nil, is called with the name of each namespace that was added,
	// changed or removed, or with an empty name after a new list. It must not block.
	NamespaceChanged func(name string)
	// WatchFailed, unless nil, is called with the resource and the error if a watch of pods or
	// namespaces fails. While retries fail, it is called again at most every half minute. Events
	// may be lost meanwhile.
	WatchFailed func(resource string, err error)
}

// The resources that a cache watches.
const (
	Pods       = "pods"
	Namespaces = "namespaces"
)

// maxFetches is the maximum number of concurrent requests for single objects to the API server. It
// limits the memory, because a pod may have a few MiB.
const maxFetches = 8

// A Cache caches pods and namespaces. It is safe for concurrent use.
type Cache struct {
	options         Options
	client          *rest.RESTClient
	pods            store
	namespaces      store
	startNamespaces chan struct{} // closed by the first call of Namespace; see Run
	once            sync.Once     // closes startNamespaces
	fetches         chan struct{} // semaphore for requests to the API server
}

// New returns a cache. Until Run is called, the cache is empty and requests each object from the
// API server.
func New(o Options) (*Cache, error) {
	if o.NodeName == "" {
		return nil, errors.New("pod cache: the node has no name")
	}
	client, err := o.Client.REST(rest.ContentConfig{
		GroupVersion: &group, NegotiatedSerializer: codecs().WithoutConversion(),
		AcceptContentTypes: "application/json", ContentType: "application/json",
	})
	if err != nil {
		return nil, err
	}
	if o.Changed == nil {
		o.Changed = func(string, string) {}
	}
	if o.NamespaceChanged == nil {
		o.NamespaceChanged = func(string) {}
	}
	if o.WatchFailed == nil {
		o.WatchFailed = func(string, error) {}
	}
	return &Cache{
		options: o, client: client,
		pods:            store{changed: func(n name) { o.Changed(n.namespace, n.name) }},
		namespaces:      store{changed: func(n name) { o.NamespaceChanged(n.name) }},
		startNamespaces: make(chan struct{}),
		fetches:         make(chan struct{}, maxFetches),
	}, nil
}

// Run keeps the cache up to date until the context ends. A failed watch of the pods is repeated
// after at most five seconds, a failed watch of the namespaces with delays that grow to a minute.
// While a watch is interrupted, its last state remains in the cache.
func (c *Cache) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() {
		c.watch(ctx, Pods, fields.OneTermEqualSelector("spec.nodeName", c.options.NodeName),
			&podBackoff, &c.pods)
	})
	group.Go(func() {
		select {
		case <-ctx.Done():
		case <-c.startNamespaces:
			c.watch(ctx, Namespaces, fields.Everything(), namespaceBackoff, &c.namespaces)
		}
	})
	group.Wait()
	c.options.Client.Close()
}

// Synced reports whether the node's pods have been listed.
func (c *Cache) Synced() bool { return c.pods.watchState().synced }

// Requested reports whether the first request for the node's pods has succeeded or failed.
func (c *Cache) Requested() bool {
	w := c.pods.watchState()
	return w.synced || w.err != nil
}

// Refused returns the error of the last request for the node's pods if the API server rejected the
// credentials or denied permission, and otherwise nil. While it is not nil, the cache is not
// updated.
func (c *Cache) Refused() error {
	err := c.pods.watchState().err
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}

// Ready returns nil if pods can be read now: the watch is established, or pods can be fetched.
func (c *Cache) Ready(ctx context.Context) error {
	if w := c.pods.watchState(); w.synced && w.current {
		return nil
	}
	return c.options.Fetch.Ready(ctx)
}

// Pod returns the JSON of a pod, which the caller must not change. fetched reports whether the
// result comes from a new request to the API server. The errors have a [source.Kind].
//
// A pod that was requested before is returned again while the watch is interrupted, or if the API
// server is unavailable. Otherwise a pod that started during an interruption of the watch could not
// get a new sandbox during the next interruption.
func (c *Cache) Pod(ctx context.Context, ref source.Ref) (pod []byte, fetched bool, err error) {
	n := name{ref.Namespace, ref.Name}
	if cached := c.pods.get(n); cached != nil && cached.hasUID(ref.UID) {
		return cached.json, false, nil
	}
	kept, isInterrupted := c.pods.getFetched(n)
	isKept := kept != nil && kept.hasUID(ref.UID)
	if isKept && isInterrupted {
		return kept.json, false, nil
	}
	var object *decide.Pod
	pod, err = fetch(ctx, c, func() (*decide.Pod, error) {
		object, err = c.options.Fetch.Pod(ctx, ref)
		return object, err
	})
	if isKept && source.IsUnavailable(err) {
		return kept.json, false, nil
	}
	if err == nil && len(pod) <= maxCachedBytes {
		c.pods.keepFetched(n, &cachedObject{
			uid: object.Metadata.UID, hash: limitLength(object.ConfigHash()), json: pod,
		})
	}
	return pod, true, err
}

// Keep keeps the JSON of a pod that another process has read from the API server, as if [Cache.Pod]
// had requested it now. It ignores a pod that is cached or too large for the cache.
func (c *Cache) Keep(pod []byte) error {
	var object decide.Pod
	if err := json.Unmarshal(pod, &object); err != nil {
		return fmt.Errorf("decode a pod: %w", err)
	}
	m := object.Metadata
	if m.Namespace == "" || m.Name == "" || m.UID == "" {
		return errors.New("the pod has no namespace, no name or no UID")
	}
	n := name{m.Namespace, m.Name}
	if cached := c.pods.get(n); len(pod) > maxCachedBytes || cached != nil && cached.hasUID(m.UID) {
		return nil
	}
	c.pods.keepFetched(n, &cachedObject{
		uid: m.UID, hash: limitLength(object.ConfigHash()), json: bytes.Clone(pod),
	})
	return nil
}

// Namespace is like [Cache.Pod], but returns the JSON of a namespace with its labels. The first
// call starts the watch of namespaces.
func (c *Cache) Namespace(
	ctx context.Context, namespaceName string,
) (namespace []byte, fetched bool, err error) {
	c.once.Do(func() { close(c.startNamespaces) })
	if cached := c.namespaces.get(name{"", namespaceName}); cached != nil {
		return cached.json, false, nil
	}
	namespace, err = fetch(ctx, c, func() (*decide.Namespace, error) {
		return c.options.Fetch.Namespace(ctx, namespaceName)
	})
	return namespace, true, err
}

// refetchTimeout limits the request of CurrentNamespace for a namespace that is cached. It is less
// than the time for which the plugin waits for the agent.
const refetchTimeout = 400 * time.Millisecond

// CurrentNamespace is like [Cache.Namespace], but requests a cached namespace again while the watch
// is interrupted, because its labels may have changed since. If the request succeeds,
// CurrentNamespace updates the cache. If it fails, it returns the cached namespace, unless the
// namespace no longer exists. It is for pods that start, because nothing corrects a pod later that
// was started outside the mesh because of earlier labels.
func (c *Cache) CurrentNamespace(
	ctx context.Context, namespaceName string,
) (namespace []byte, fetched bool, err error) {
	n := name{"", namespaceName}
	cached := c.namespaces.get(n)
	if cached == nil || c.namespaces.watchState().current {
		return c.Namespace(ctx, namespaceName)
	}
	ctx, cancel := context.WithTimeout(ctx, refetchTimeout)
	defer cancel()
	namespace, err = fetch(ctx, c, func() (*decide.Namespace, error) {
		return c.options.Fetch.Namespace(ctx, namespaceName)
	})
	if err != nil && !source.IsNotFound(err) {
		return cached.json, false, nil
	}
	if err == nil {
		c.namespaces.update(n, cached, namespace)
	}
	return namespace, true, err
}

// fetch calls request, which requests an object from the API server, and returns the object's JSON.
// At most maxFetches calls run at a time.
func fetch[T any](ctx context.Context, c *Cache, request func() (*T, error)) ([]byte, error) {
	select {
	case c.fetches <- struct{}{}:
		defer func() { <-c.fetches }()
	case <-ctx.Done():
		return nil, source.WithKind(source.Unavailable,
			errors.New("too many concurrent requests to the API server"))
	}
	object, err := request()
	if err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// An Item contains the identity, the version and the status of a pod of the node.
type Item struct {
	source.Ref
	// ResourceVersion is the version of the pod's last change.
	ResourceVersion string
	PodStatus       PodStatus
}

// Pods returns the pods of the node sorted by name, or no pods before they have been listed.
// [Cache.Pod] returns the object.
func (c *Cache) Pods() []Item {
	items := c.pods.all()
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.String(), b.String()) })
	return items
}

// Item returns a pod of the node. It returns false if the last state of the watch does not contain
// the pod.
func (c *Cache) Item(namespace, podName string) (Item, bool) {
	return c.pods.item(name{namespace, podName})
}
