package source_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// fixed always answers alike, and counts.
type fixed struct {
	uid   string
	err   error
	asked *[]string
}

func (f fixed) Pod(context.Context, source.Ref) (*decide.Pod, error) {
	*f.asked = append(*f.asked, f.uid)
	if f.err != nil {
		return nil, f.err
	}
	return &decide.Pod{Metadata: decide.Metadata{UID: f.uid}}, nil
}

func (f fixed) Namespace(context.Context, string) (*decide.Namespace, error) {
	*f.asked = append(*f.asked, f.uid)
	if f.err != nil {
		return nil, f.err
	}
	return &decide.Namespace{Metadata: decide.Metadata{UID: f.uid}}, nil
}

func (f fixed) Ready(context.Context) error {
	*f.asked = append(*f.asked, f.uid)
	return f.err
}

func (f fixed) Close() { *f.asked = append(*f.asked, f.uid) }

func TestFallback(t *testing.T) {
	because := func(kind source.Kind) error {
		return source.WithKind(kind, errors.New(string(kind)))
	}
	for _, row := range []struct {
		name  string
		a, b  error
		asked []string
		kind  source.Kind
		text  string
	}{
		{"the first that answers is enough", nil, nil, []string{"a"}, "", ""},
		{
			"that there is no pod is an answer", because(source.NotFound), nil,
			[]string{"a"},
			source.NotFound, "not-found",
		},
		{
			"that it is another one as yet is not: the next may ask for longer",
			because(source.Replaced), nil,
			[]string{"a", "b"},
			"", "",
		},
		{
			"unless it stays another one",
			because(source.Replaced), because(source.Replaced),
			[]string{"a", "b"},
			source.Replaced, "replaced; replaced",
		},
		{
			"one that is not there is not", because(source.Unavailable), nil,
			[]string{"a", "b"},
			"", "",
		},
		{"one that refuses is not", because(source.Forbidden), nil, []string{"a", "b"}, "", ""},
		{
			"nor one that does not know us", because(source.Unauthorized), nil,
			[]string{"a", "b"},
			"", "",
		},
		{
			"nor one that is not set up", because(source.Misconfigured), nil,
			[]string{"a", "b"},
			"", "",
		},
		{"nor one whose error says nothing", errors.New("what?"), nil, []string{"a", "b"}, "", ""},
		{
			"a later answer that there is none counts too",
			because(source.Unavailable), because(source.NotFound),
			[]string{"a", "b"},
			source.NotFound, "not-found",
		},
		{
			"without an answer all are heard",
			because(source.Unavailable), because(source.Forbidden),
			[]string{"a", "b"},
			source.Forbidden, "unavailable; forbidden",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var asked, askedAgain, ready []string
			pod, err := source.Fallback(fixed{
				"a", row.a, &asked,
			}, fixed{"b", row.b, &asked}).Pod(t.Context(), web)
			outcome{pod: pod, err: err}.check(t, row.kind, row.text)
			if d := cmp.Diff(row.asked, asked); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			_, err = source.Fallback(fixed{
				"a", row.a, &askedAgain,
			}, fixed{"b", row.b, &askedAgain}).Namespace(t.Context(), "default")
			if source.KindOf(err) != row.kind || !cmp.Equal(row.asked, askedAgain) {
				t.Errorf("namespaces differ from pods: %v asked %q", err, askedAgain)
			}
			err = source.Fallback(fixed{
				"a", row.a, &ready,
			}, fixed{"b", row.b, &ready}).Ready(t.Context())
			if source.KindOf(err) != row.kind || !cmp.Equal(row.asked, ready) {
				t.Errorf("ready differs from pods: %v asked %q", err, ready)
			}
		})
	}
}

func TestFallbackClosesAll(t *testing.T) {
	var closed []string
	source.Fallback(fixed{"a", nil, &closed}, fixed{"b", nil, &closed}).Close()
	if d := cmp.Diff([]string{"a", "b"}, closed); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestFallbackOfNone(t *testing.T) {
	_, err := source.Fallback().Pod(t.Context(), web)
	if !source.IsMisconfigured(err) {
		t.Errorf("%v", err)
	}
}

func TestFallbackStopsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var asked []string
	_, err := source.Fallback(fixed{"a", ctx.Err(), &asked}, fixed{"b", nil, &asked}).Pod(ctx, web)
	if !errors.Is(err, context.Canceled) || len(asked) != 1 {
		t.Errorf("asked %q: %v", asked, err)
	}
}

func TestKinds(t *testing.T) {
	questions := map[source.Kind]func(error) bool{
		source.NotFound: source.IsNotFound, source.Replaced: source.IsReplaced,
		source.Unauthorized: source.IsRefused,
		source.Forbidden:    source.IsRefused, source.Misconfigured: source.IsMisconfigured,
		source.Unavailable: source.IsUnavailable,
	}
	for _, kind := range source.Kinds() {
		err := errors.Join(errors.New("beside"), source.WithKind(kind, context.Canceled))
		if source.KindOf(err) != kind || !questions[kind](err) ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("%s is not found again", kind)
		}
	}
	for kind, question := range questions {
		if question(nil) {
			t.Errorf("no error is %s", kind)
		}
	}
	if !source.IsUnavailable(errors.New("anything")) {
		t.Error("an error of no kind is not unavailable")
	}
}
