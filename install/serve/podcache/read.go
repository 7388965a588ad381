package podcache

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// A Reader provides the node's pods, and the JSON of pods and namespaces; implemented by [Cache].
type Reader interface {
	Synced() bool
	Pods() []Item
	Item(namespace, name string) (Item, bool)
	Pod(ctx context.Context, ref source.Ref) (pod []byte, fetched bool, err error)
	Namespace(ctx context.Context, name string) (namespace []byte, fetched bool, err error)
}

// ReadPod returns the object of a pod.
func ReadPod(ctx context.Context, r Reader, ref source.Ref) (*decide.Pod, error) {
	data, _, err := r.Pod(ctx, ref)
	return decode[decide.Pod](data, err, "pod "+ref.String())
}

// ReadNamespace returns the object of a namespace.
func ReadNamespace(ctx context.Context, r Reader, name string) (*decide.Namespace, error) {
	data, _, err := r.Namespace(ctx, name)
	return decode[decide.Namespace](data, err, "namespace "+name)
}

// decode decodes an object, or returns err if it is not nil.
func decode[T any](data []byte, err error, description string) (*T, error) {
	if err != nil {
		return nil, err
	}
	object := new(T)
	if err := json.Unmarshal(data, object); err != nil {
		return nil, fmt.Errorf("decode %s: %w", description, err)
	}
	return object, nil
}
