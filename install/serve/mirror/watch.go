package mirror

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watch keeps a store up to date until the context ends.
func (m *Mirror) watch(ctx context.Context, resource string, which fields.Selector, s *store) {
	from := cache.NewListWatchFromClient(m.client, resource, "", which)
	note := func(err error) {
		if err != nil {
			err = fmt.Errorf("watch %s: %w", resource, err)
		}
		s.note(err)
		if err != nil && ctx.Err() == nil && m.options.Broken != nil {
			m.options.Broken(err)
		}
	}
	observed := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, o)
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := from.WatchWithContext(ctx, o)
			note(err)
			return w, err
		},
	}
	options := cache.ReflectorOptions{Name: "mirror", TypeDescription: resource}
	cache.NewReflectorWithOptions(observed, &object{}, s, options).RunWithContext(ctx)
}
