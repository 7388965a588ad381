package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// First returns a source that asks the given ones in their order until one answers: by a pod or a namespace, or by an error that
// [IsNotFound] holds for. That another pod has the name as yet is no answer, since the next source may ask for longer. If none answers,
// the error has the texts of all and the kind of the last. It is ready if one of them is.
//
// Each source has its own budget of time; the context bounds all of them together.
func First(sources ...Source) Source { return first(sources) }

type first []Source

// Pod implements [Source].
func (f first) Pod(ctx context.Context, ref Ref) (*decide.Pod, error) {
	return firstAnswer(ctx, f, func(s Source) (*decide.Pod, error) { return s.Pod(ctx, ref) })
}

// Namespace implements [Source].
func (f first) Namespace(ctx context.Context, name string) (*decide.Namespace, error) {
	return firstAnswer(ctx, f, func(s Source) (*decide.Namespace, error) { return s.Namespace(ctx, name) })
}

// Ready implements [Source].
func (f first) Ready(ctx context.Context) error {
	_, err := firstAnswer(ctx, f, func(s Source) (*struct{}, error) { return nil, s.Ready(ctx) })
	return err
}

// Close implements [Source].
func (f first) Close() {
	for _, s := range f {
		s.Close()
	}
}

func firstAnswer[T any](ctx context.Context, sources []Source, question func(Source) (*T, error)) (*T, error) {
	failed := errors.New("no source is configured")
	kind := Misconfigured
	for i, s := range sources {
		answer, err := question(s)
		if err == nil || IsNotFound(err) {
			return answer, err
		}
		kind = KindOf(err)
		if failed = joined(failed, err, i); ctx.Err() != nil {
			break
		}
	}
	return nil, WithKind(kind, failed)
}

// joined adds the error of a source to those of the sources before it, on one line.
func joined(before, err error, index int) error {
	if index == 0 {
		return err
	}
	return fmt.Errorf("%w; %w", before, err)
}
