package podcache

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCopiesAreDeep checks that a copy, which client-go may make, shares no memory with its
// original: trim changes its argument.
func TestCopiesAreDeep(t *testing.T) {
	var l list
	l.ResourceVersion = "7"
	o := object{Spec: []byte(`{"a":1}`), Status: []byte(`{"b":2}`)}
	o.Name, o.Annotations = "web", map[string]string{lastApplied: "x", "a": "b"}
	l.Items = append(l.Items, o)
	c := l.DeepCopyObject().(*list)
	if _, err := trim(&c.Items[0]); err != nil {
		t.Fatal(err)
	}
	c.Items[0].Spec[0], c.Items[0].Status[0] = 'x', 'x'
	if d := cmp.Diff(map[string]string{lastApplied: "x", "a": "b"},
		l.Items[0].Annotations); d != "" || c.ResourceVersion != "7" {
		t.Errorf("resource version of the copy %q; annotations of the original (-want +got)\n%s",
			c.ResourceVersion, d)
	}
	if got := string(l.Items[0].Spec) + string(l.Items[0].Status); got != `{"a":1}{"b":2}` {
		t.Errorf("specification and status of the original: %s, want them unchanged", got)
	}
}

func TestOnlyObjectsAreTrimmed(t *testing.T) {
	if _, err := trim("x"); err == nil {
		t.Error("trim accepts a string, want an error")
	}
}

// FuzzPodStatus checks that the size of a cached status is bounded.
func FuzzPodStatus(f *testing.F) {
	f.Add([]byte(`{"restartPolicy":"Always"}`), []byte(`{"phase":"Pending","initContainerStatuses":[{"name":"a","state":{"terminated":{"exitCode":0}},
		"lastState":{"terminated":{"exitCode":126,"message":"x","startedAt":"2026-11-20T12:00:00Z"}}}]}`))
	f.Add([]byte(`{}`),
		[]byte(`{"initContainerStatuses":[{"lastState":{"terminated":{"startedAt":7}}}]}`))
	f.Fuzz(func(t *testing.T, spec, status []byte) {
		cached := statusOf(&object{Spec: spec, Status: status})
		length := 0
		for _, c := range cached.Init {
			if c.Last != nil {
				length += len(c.Last.Message)
			}
		}
		if length > maxMessagesBytes {
			t.Errorf("%d bytes of messages, want at most %d", length, maxMessagesBytes)
		}
	})
}

// TestALongHashIsNotCached covers the annotation that identifies a static pod. In other pods its
// value is arbitrary text.
func TestALongHashIsNotCached(t *testing.T) {
	for length, want := range map[int]int{32: 32, 200 << 10: 0} {
		o := object{}
		o.Name, o.Namespace, o.Annotations = "web", "shop",
			map[string]string{"kubernetes.io/config.mirror": strings.Repeat("x", length)}
		trimmed, err := trim(&o)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(trimmed.(*object).cached.hash); got != want {
			t.Errorf("%d of %d bytes are cached, want %d", got, length, want)
		}
	}
}

// TestAWatchAfterASilentOneIsEstablishedByItsFirstEvent checks that a list by a separate request is
// used, and that the watch that follows it does not count as established before it sends an event.
func TestAWatchAfterASilentOneIsEstablishedByItsFirstEvent(t *testing.T) {
	s := store{changed: func(name) {}}
	s.watchStarted(true)
	if !s.recordMissingList() {
		t.Fatal("the list is not missing before Replace")
	}
	s.setWatchError(errListMissing)
	s.watchEnded()
	if err := s.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	s.watchStarted(false)
	if w := s.watchState(); !w.synced || w.current || !errors.Is(w.err, errListMissing) {
		t.Errorf("before the first event: %+v; want synced, not current, error %v", w, errListMissing)
	}
	s.UpdateResourceVersion("2")
	if w := s.watchState(); !w.current || w.err != nil || s.recordMissingList() {
		t.Errorf("after the first event: %+v; want current without an error", w)
	}
}
