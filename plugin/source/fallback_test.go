package source_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// fixedSource is a source that always returns the same answer, and records the requests.
type fixedSource struct {
	name      string // also the UID of the returned objects
	err       error
	requested *[]string
}

func (f fixedSource) Pod(context.Context, source.Ref) (*decide.Pod, error) {
	*f.requested = append(*f.requested, f.name)
	if f.err != nil {
		return nil, f.err
	}
	return &decide.Pod{Metadata: decide.Metadata{UID: f.name}}, nil
}

func (f fixedSource) Namespace(context.Context, string) (*decide.Namespace, error) {
	*f.requested = append(*f.requested, f.name)
	if f.err != nil {
		return nil, f.err
	}
	return &decide.Namespace{Metadata: decide.Metadata{UID: f.name}}, nil
}

func (f fixedSource) Ready(context.Context) error {
	*f.requested = append(*f.requested, f.name)
	return f.err
}

func (f fixedSource) Close() { *f.requested = append(*f.requested, f.name) }

func TestFallback(t *testing.T) {
	errorOf := func(kind source.Kind) error {
		return source.WithKind(kind, errors.New(string(kind)))
	}
	for _, row := range []struct {
		name      string
		a, b      error
		requested []string
		kind      source.Kind
		text      string
	}{
		{"the first answer is sufficient", nil, nil, []string{"a"}, "", ""},
		{
			"not found is an answer", errorOf(source.NotFound), nil,
			[]string{"a"},
			source.NotFound, "not-found",
		},
		{
			"replaced is not an answer, because the next source may retry longer",
			errorOf(source.Replaced), nil,
			[]string{"a", "b"},
			"", "",
		},
		{
			"all sources report that the pod was replaced",
			errorOf(source.Replaced), errorOf(source.Replaced),
			[]string{"a", "b"},
			source.Replaced, "replaced; replaced",
		},
		{
			"unavailable is not an answer", errorOf(source.Unavailable), nil,
			[]string{"a", "b"},
			"", "",
		},
		{"forbidden is not an answer", errorOf(source.Forbidden), nil, []string{"a", "b"}, "", ""},
		{
			"unauthorized is not an answer", errorOf(source.Unauthorized), nil,
			[]string{"a", "b"},
			"", "",
		},
		{
			"misconfigured is not an answer", errorOf(source.Misconfigured), nil,
			[]string{"a", "b"},
			"", "",
		},
		{"an error without a kind is not an answer", errors.New("what?"), nil, []string{"a", "b"}, "", ""},
		{
			"not found from a later source is an answer",
			errorOf(source.Unavailable), errorOf(source.NotFound),
			[]string{"a", "b"},
			source.NotFound, "not-found",
		},
		{
			"without an answer the errors of all sources are reported",
			errorOf(source.Unavailable), errorOf(source.Forbidden),
			[]string{"a", "b"},
			source.Forbidden, "unavailable; forbidden",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var requested, namespaces, ready []string
			pod, err := source.Fallback(fixedSource{
				"a", row.a, &requested,
			}, fixedSource{"b", row.b, &requested}).Pod(t.Context(), web)
			if pod != nil && pod.Metadata.UID != requested[len(requested)-1] {
				t.Errorf("the pod is from source %s, want it from the last of the requested sources %q",
					pod.Metadata.UID, requested)
			}
			outcome{pod: pod, err: err}.check(t, row.kind, row.text)
			if d := cmp.Diff(row.requested, requested); d != "" {
				t.Errorf("requested sources (-want +got)\n%s", d)
			}
			namespace, err := source.Fallback(fixedSource{
				"a", row.a, &namespaces,
			}, fixedSource{"b", row.b, &namespaces}).Namespace(t.Context(), "default")
			if source.KindOf(err) != row.kind || !cmp.Equal(row.requested, namespaces) {
				t.Errorf("Namespace: error %v, requested sources %q, want kind %q and sources %q",
					err, namespaces, row.kind, row.requested)
			}
			if namespace != nil && namespace.Metadata.UID != namespaces[len(namespaces)-1] {
				t.Errorf("the namespace is from source %s, want it from the last of the requested sources %q",
					namespace.Metadata.UID, namespaces)
			}
			err = source.Fallback(fixedSource{
				"a", row.a, &ready,
			}, fixedSource{"b", row.b, &ready}).Ready(t.Context())
			if source.KindOf(err) != row.kind || !cmp.Equal(row.requested, ready) {
				t.Errorf("Ready: error %v, requested sources %q, want kind %q and sources %q",
					err, ready, row.kind, row.requested)
			}
		})
	}
}

func TestFallbackClosesAll(t *testing.T) {
	var closed []string
	source.Fallback(fixedSource{"a", nil, &closed}, fixedSource{"b", nil, &closed}).Close()
	if d := cmp.Diff([]string{"a", "b"}, closed); d != "" {
		t.Errorf("closed sources (-want +got)\n%s", d)
	}
}

func TestFallbackWithoutSourcesIsMisconfigured(t *testing.T) {
	_, err := source.Fallback().Pod(t.Context(), web)
	if !source.IsMisconfigured(err) {
		t.Errorf("error %v, want the kind misconfigured", err)
	}
}

func TestFallbackStopsWhenTheContextIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var requested []string
	_, err := source.Fallback(fixedSource{"a", ctx.Err(), &requested}, fixedSource{"b", nil, &requested}).Pod(ctx, web)
	if !errors.Is(err, context.Canceled) || len(requested) != 1 {
		t.Errorf("requested %q, error %v, want only the first source and context.Canceled", requested,
			err)
	}
}

func TestKindIsFoundInAJoinedError(t *testing.T) {
	kindChecks := map[source.Kind]func(error) bool{
		source.NotFound: source.IsNotFound, source.Replaced: source.IsReplaced,
		source.Unauthorized: source.IsRefused,
		source.Forbidden:    source.IsRefused, source.Misconfigured: source.IsMisconfigured,
		source.Unavailable: source.IsUnavailable,
	}
	for _, kind := range source.Kinds() {
		err := errors.Join(errors.New("another error"), source.WithKind(kind, context.Canceled))
		if source.KindOf(err) != kind || !kindChecks[kind](err) ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("the kind %s is lost in a joined error", kind)
		}
	}
	for kind, isKind := range kindChecks {
		if isKind(nil) {
			t.Errorf("nil has the kind %s", kind)
		}
	}
	if !source.IsUnavailable(errors.New("anything")) {
		t.Error("an error without a kind is not unavailable")
	}
}
