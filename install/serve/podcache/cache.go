package podcache

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options say what is cached.
type Options struct {
	// Client sends the requests. Run closes its idle connections at the end.
	Client *apiclient.Client
	// NodeName is the name of the node whose pods are kept.
	NodeName string
	// Fetch is asked for what is not kept.
	Fetch source.Source
	// Changed is called with the name of each pod that was changed, made or removed, if it is not
	// nil; with empty ones when all were listed anew, so that any of them may have been. It must
	// not wait.
	Changed func(namespace, name string)
	// Broken is called with the error when a watch cannot be made, and every half minute as long as
	// it cannot, if it is not nil. Events may be lost until it can; what is kept is then listed
	// anew.
	Broken func(error)
}

// maxFetches bounds the questions to the API server at a time; a pod has at most some MiB.
const maxFetches = 8

// A Cache keeps pods and namespaces. It is safe for concurrent use.
type Cache struct {
	options         Options
	client          *rest.RESTClient
	pods            store
	namespaces      store
	wantsNamespaces chan struct{}
	once            sync.Once
	fetches         chan struct{}
}

// New returns a cache that is empty until Run, and fetches everything.
func New(o Options) (*Cache, error) {
	if o.NodeName == "" {
		return nil, errors.New("pods of the node: it has no name")
	}
	client, err := o.Client.REST("/api", rest.ContentConfig{
		GroupVersion: &group, NegotiatedSerializer: codecs().WithoutConversion(),
		AcceptContentTypes: "application/json", ContentType: "application/json",
	})
	if err != nil {
		return nil, err
	}
	return &Cache{
		options: o, client: client,
		pods:            store{changed: o.tellChange},
		wantsNamespaces: make(chan struct{}),
		fetches:         make(chan struct{}, maxFetches),
	}, nil
}

func (o *Options) tellChange(n name) {
	if o.Changed != nil {
		o.Changed(n.namespace, n.name)
	}
}

// Run keeps the cache up to date until the context ends. What fails is tried again: pods after at
// most five seconds, namespaces with longer and longer pauses, up to a minute. Meanwhile the last
// state stays.
func (m *Cache) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() {
		m.watch(ctx, "pods", fields.OneTermEqualSelector("spec.nodeName", m.options.NodeName), &podPause, &m.pods)
	})
	group.Go(func() {
		select {
		case <-ctx.Done():
		case <-m.wantsNamespaces:
			m.watch(ctx, "namespaces", fields.Everything(), namespacePause, &m.namespaces)
		}
	})
	group.Wait()
	m.options.Client.Close()
}

// Synced reports whether the node's pods have been listed.
func (m *Cache) Synced() bool { return m.pods.ready() }

// Asked reports whether anything came of the first question for the node's pods, be it an answer or
// none.
func (m *Cache) Asked() bool { return m.Synced() || m.pods.trouble() != nil }

// Refused returns the API server's answer that it does not let us list or watch the node's pods,
// and nil again once it does, or does not answer: what is kept grows old while it refuses.
func (m *Cache) Refused() error { return m.pods.refusal() }

// Ready reports whether a pod can be answered: the cache follows the API server, or that can be
// asked.
func (m *Cache) Ready(ctx context.Context) error {
	if m.Synced() && m.pods.trouble() == nil {
		return nil
	}
	return m.options.Fetch.Ready(ctx)
}

// Pod returns the JSON of a pod, and whether it had to be fetched. It must not be changed. The
// errors are those of [source.Source].
func (m *Cache) Pod(ctx context.Context, ref source.Ref) (pod []byte, fetched bool, err error) {
	if k := m.pods.get(name{ref.Namespace, ref.Name}); k != nil && k.hasUID(ref.UID) {
		return k.json, false, nil
	}
	pod, err = fetch(ctx, m, func() (*decide.Pod, error) { return m.options.Fetch.Pod(ctx, ref) })
	return pod, true, err
}

// Namespace returns the JSON of a namespace with its labels, as Pod does. The first question is
// what makes the cache watch them.
func (m *Cache) Namespace(ctx context.Context, which string) (namespace []byte, fetched bool, err error) {
	m.once.Do(func() { close(m.wantsNamespaces) })
	if k := m.namespaces.get(name{"", which}); k != nil {
		return k.json, false, nil
	}
	namespace, err = fetch(ctx, m, func() (*decide.Namespace, error) { return m.options.Fetch.Namespace(ctx, which) })
	return namespace, true, err
}

// fetch asks the API server, after those who wait already.
func fetch[T any](ctx context.Context, m *Cache, question func() (*T, error)) ([]byte, error) {
	select {
	case m.fetches <- struct{}{}:
		defer func() { <-m.fetches }()
	case <-ctx.Done():
		return nil, source.WithKind(source.Unavailable, errors.New("too many questions to the API server at a time"))
	}
	answer, err := question()
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// An Item names a pod that is kept.
type Item struct {
	source.Ref
	// ResourceVersion is that of the pod's last change.
	ResourceVersion string
	PodStatus       PodStatus
}

// Pods returns the pods of the node in the order of their names; none before they are listed.
// [Cache.Pod] has the rest.
func (m *Cache) Pods() []Item {
	items := m.pods.all()
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.String(), b.String()) })
	return items
}

// Item returns a pod of the node, if it is kept.
func (m *Cache) Item(namespace, podName string) (Item, bool) {
	return m.pods.one(name{namespace, podName})
}
