package podcache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// maxCachedBytes is the maximum size of a cached object in bytes. An injected pod has about 4 KiB.
const maxCachedBytes = 32 << 10

// lastApplied is an annotation that kubectl writes. It is removed, because it doubles the size of a
// pod and decisions do not need it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// An object is a pod or a namespace, first as received and then as cached. The types of k8s.io/api
// are not used, because decoding their many fields takes time.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec,omitempty"`
	Status            json.RawMessage `json:"status,omitempty"`

	// cached is the cached form. When it is set, the fields above contain only the identity.
	cached *cachedObject
}

// DeepCopyObject implements [runtime.Object].
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	o.DeepCopyInto(&c.ObjectMeta)
	c.Spec, c.Status = bytes.Clone(o.Spec), bytes.Clone(o.Status)
	return &c
}

// trim converts an object to its cached form. The cached form of an invalid or large object, or of
// a pod that has ended, has no JSON: the cache then fetches the object for each request, and
// returns an error if the object is invalid. A node may have thousands of pods that have ended, and
// they are not requested. trim itself returns no error for an invalid object, because client-go
// would log the whole object.
func trim(obj any) (any, error) {
	o, ok := obj.(*object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object of this package", obj)
	}
	if o.cached != nil {
		return o, nil
	}
	identity := decide.Pod{Metadata: decide.Metadata{Annotations: o.Annotations}}
	cached := &cachedObject{
		uid: string(o.UID), hash: limitLength(identity.ConfigHash()), version: o.ResourceVersion,
	}
	if o.Namespace != "" {
		cached.status = statusOf(o)
	}
	if text, err := o.encode(); err == nil && len(text) <= maxCachedBytes &&
		!cached.status.HasEnded() {
		cached.json = bytes.Clone(text) // without the unused capacity of the encoder's buffer
	}
	t := &object{TypeMeta: o.TypeMeta, cached: cached}
	t.Namespace, t.Name, t.ResourceVersion = o.Namespace, o.Name, o.ResourceVersion
	return t, nil
}

// maxNameLength is the maximum length of a name in Kubernetes.
const maxNameLength = 253

// limitLength returns the text, or an empty string if it is longer than maxNameLength and therefore
// invalid.
func limitLength(text string) string {
	if len(text) > maxNameLength {
		return ""
	}
	return text
}

// encode returns the JSON of the parts that decisions need.
func (o *object) encode() ([]byte, error) {
	m := decide.Metadata{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Labels: o.Labels}
	if o.Namespace == "" { // a namespace; objects in a list have no kind
		return json.Marshal(decide.Namespace{Metadata: m})
	}
	delete(o.Annotations, lastApplied)
	m.Annotations = o.Annotations
	pod := decide.Pod{Metadata: m}
	if err := errors.Join(unmarshal(o.Spec, &pod.Spec),
		unmarshal(o.Status, &pod.Status)); err != nil {
		return nil, err
	}
	return json.Marshal(pod)
}

// unmarshal is like [json.Unmarshal], but does not change the value if the text is empty.
func unmarshal(text json.RawMessage, value any) error {
	if len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, value)
}

// list is a list of objects.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []object `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (l *list) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = make([]object, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*object)
	}
	return &c
}

// group is version v1 of the core API group. The name of this group is empty.
var group = schema.GroupVersion{Version: "v1"}

// kinds contains the kind of the objects of each resource.
var kinds = map[string]string{Pods: "Pod", Namespaces: "Namespace"}

// codecs returns decoders of pods and namespaces to the types of this package.
func codecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, kind := range kinds {
		scheme.AddKnownTypeWithName(group.WithKind(kind), &object{})
	}
	metav1.AddToGroupVersion(scheme, group)
	return serializer.NewCodecFactory(scheme)
}
