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
	if err != nil {
		return nil, err
	}
	pod := new(decide.Pod)
	if err := json.Unmarshal(data, pod); err != nil {
		return nil, fmt.Errorf("decode pod %s: %w", ref, err)
	}
	return pod, nil
}

// ReadNamespace returns the object of a namespace.
func ReadNamespace(ctx context.Context, r Reader, name string) (*decide.Namespace, error) {
	data, _, err := r.Namespace(ctx, name)
	if err != nil {
		return nil, err
	}
	namespace := new(decide.Namespace)
	if err := json.Unmarshal(data, namespace); err != nil {
		return nil, fmt.Errorf("decode namespace %s: %w", name, err)
	}
	return namespace, nil
}
