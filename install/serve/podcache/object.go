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

// longestKept is how many bytes of one object are kept. An injected pod has about 4 KiB.
const longestKept = 32 << 10

// configHash is the annotation by which a static pod is known; see [decide.Pod.HasUID].
const configHash = "kubernetes.io/config.hash"

// lastApplied is written by kubectl, doubles a pod, and never counts.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// object is a pod or a namespace: first as the API server sends it, and then as it is kept. The
// types of k8s.io/api are not linked, and their many fields are never decoded.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec,omitempty"`
	Status            json.RawMessage `json:"status,omitempty"`

	// kept is what will be kept. When it is there, all but the identity is gone from the fields
	// above.
	kept *kept
}

// DeepCopyObject implements [runtime.Object].
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	o.DeepCopyInto(&c.ObjectMeta)
	c.Spec, c.Status = bytes.Clone(o.Spec), bytes.Clone(o.Status)
	return &c
}

// trim turns an object into what is kept of it. Of one that is not understood that is its name:
// whoever asks for it shall hear why. An error would make client-go log the whole object, with all
// that its owner wrote into it.
func trim(what any) (any, error) {
	o, ok := what.(*object)
	if !ok {
		return nil, fmt.Errorf("%T is no object of this package", what)
	}
	if o.kept != nil {
		return o, nil
	}
	k := &kept{uid: string(o.UID), hash: short(o.Annotations[configHash]), version: o.ResourceVersion}
	if text, err := o.counting(); err == nil && len(text) <= longestKept {
		k.json = bytes.Clone(text) // without the room that the encoder left
	}
	if o.Namespace != "" {
		k.life = lifeOf(o)
	}
	t := &object{TypeMeta: o.TypeMeta, kept: k}
	t.Namespace, t.Name, t.ResourceVersion = o.Namespace, o.Name, o.ResourceVersion
	return t, nil
}

// longestName is the length of the longest names that Kubernetes knows.
const longestName = 253

// short returns a text, or nothing if it is longer than any that could be meant.
func short(text string) string {
	if len(text) > longestName {
		return ""
	}
	return text
}

// counting returns the JSON of what decisions need.
func (o *object) counting() ([]byte, error) {
	m := decide.Metadata{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Labels: o.Labels}
	if o.Namespace == "" { // the objects of a list do not say their kind
		return json.Marshal(decide.Namespace{Metadata: m})
	}
	delete(o.Annotations, lastApplied)
	m.Annotations = o.Annotations
	pod := decide.Pod{Metadata: m}
	if err := errors.Join(unmarshal(o.Spec, &pod.Spec), unmarshal(o.Status, &pod.Status)); err != nil {
		return nil, err
	}
	return json.Marshal(pod)
}

// unmarshal leaves the value alone where there is nothing.
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

var group = schema.GroupVersion{Version: "v1"}

// codecs decode pods and namespaces into what this package has of them.
func codecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, kind := range []string{"Pod", "Namespace"} {
		scheme.AddKnownTypeWithName(group.WithKind(kind), &object{})
		scheme.AddKnownTypeWithName(group.WithKind(kind+"List"), &list{})
	}
	metav1.AddToGroupVersion(scheme, group)
	return serializer.NewCodecFactory(scheme)
}
