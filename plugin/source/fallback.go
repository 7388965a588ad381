package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// Fallback returns a source that calls the given sources in order until one returns an object or an
// error for which [IsNotFound] is true. After any other error it calls the next source, even if
// [IsReplaced] is true for the error, because the source may know only an older pod of this name,
// and the next source may wait longer for the requested one. If all sources fail, the error
// contains the texts of all errors and has the kind of the last one. The returned source is ready
// if one of the given sources is ready. Each source has its own timeout, and the context limits all
// sources together.
func Fallback(sources ...Source) Source { return fallback(sources) }

// A fallback is the source that [Fallback] returns.
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

// firstAnswer calls the sources in order, and returns the first answer.
func firstAnswer[T any](
	ctx context.Context, sources []Source, call func(Source) (*T, error),
) (*T, error) {
	if len(sources) == 0 {
		return nil, WithKind(Misconfigured, errors.New("no source is configured"))
	}
	var combined error
	for _, s := range sources {
		answer, err := call(s)
		if err == nil || IsNotFound(err) {
			return answer, err
		}
		kind := KindOf(err)
		if combined != nil {
			err = fmt.Errorf("%w; %w", combined, err)
		}
		if combined = WithKind(kind, err); ctx.Err() != nil {
			break
		}
	}
	return nil, combined
}
