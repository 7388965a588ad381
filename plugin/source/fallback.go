package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// Fallback returns a source that asks the given sources in order until one answers, with an object
// or with an error for which [IsNotFound] is true. An error for which [IsReplaced] is true is no
// answer, because the next source may wait longer for the new pod. If no source answers, the error
// has the texts of all errors and the kind of the last. The source is ready if one of them is.
//
// Each source has its own time budget. The context bounds all of them together.
func Fallback(sources ...Source) Source { return fallback(sources) }

type fallback []Source

// Pod implements [Source].
func (f fallback) Pod(ctx context.Context, ref Ref) (*decide.Pod, error) {
	return firstAnswer(ctx, f, func(s Source) (*decide.Pod, error) { return s.Pod(ctx, ref) })
}

// Namespace implements [Source].
func (f fallback) Namespace(ctx context.Context, name string) (*decide.Namespace, error) {
	return firstAnswer(ctx, f, func(s Source) (*decide.Namespace, error) {
		return s.Namespace(ctx, name)
	})
}

// Ready implements [Source].
func (f fallback) Ready(ctx context.Context) error {
	_, err := firstAnswer(ctx, f, func(s Source) (*struct{}, error) { return nil, s.Ready(ctx) })
	return err
}

// Close implements [Source].
func (f fallback) Close() {
	for _, s := range f {
		s.Close()
	}
}

func firstAnswer[T any](
	ctx context.Context, sources []Source, question func(Source) (*T, error),
) (*T, error) {
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

// joined appends the error of a source to the errors of the sources before it, on one line.
func joined(before, err error, index int) error {
	if index == 0 {
		return err
	}
	return fmt.Errorf("%w; %w", before, err)
}
