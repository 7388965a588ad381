package nft

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func mustPrepare(t testing.TB, rs rules.Ruleset) *Prepared {
	t.Helper()
	p, err := Prepare(rs)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPreparedIsAppliedToManyNamespacesConcurrently applies a ruleset twice to each namespace. The
// namespaces share one encoded transaction.
func TestPreparedIsAppliedToManyNamespacesConcurrently(t *testing.T) {
	rs := example("exclusions-dual")
	p := mustPrepare(t, rs)
	var group sync.WaitGroup
	for range 8 {
		ns := netnstest.New(t)
		group.Go(func() {
			for _, want := range []Outcome{Created, Unchanged} {
				if got, err := p.Apply(ns, ApplyOptions{}); err != nil || got.Outcome != want {
					t.Errorf("result %+v, error %v, want outcome %s", got, err, want)
				}
			}
			found, err := Read(ns)
			if err != nil {
				t.Error(err)
			}
			if diffs := rules.Compare(rs, found); len(diffs) > 0 {
				t.Errorf("the namespace does not have the ruleset:\n%s", listing(diffs))
			}
		})
	}
	group.Wait()
}

// TestPreparedEncodesOnce checks that the transaction of a first installation is encoded once.
func TestPreparedEncodesOnce(t *testing.T) {
	p := mustPrepare(t, example("sidecar-ipv4"))
	first, err := p.creation()
	if err != nil {
		t.Fatal(err)
	}
	second, _ := p.creation()
	if first != second {
		t.Error("the second call encodes the transaction again, want the first one")
	}
	want, err := Encode(example("sidecar-ipv4"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Bytes(), first.Bytes()); diff != "" {
		t.Errorf("transactions (-Encode +Prepare):\n%s", diff)
	}
}

// TestBeforeChangeIsCalledOnceBeforeAChange checks that BeforeChange is called with the lock held,
// and is not called without a change. If it returns an error, Apply changes nothing.
func TestBeforeChangeIsCalledOnceBeforeAChange(t *testing.T) {
	rs := example("tproxy-dual")
	ns := netnstest.New(t)
	refused := errors.New("refused")
	calls, returned := 0, refused
	o := ApplyOptions{BeforeChange: func(exclusive bool) error {
		calls++
		release, free, err := (*netns.NS)(nil).Lock(0)
		release()
		if !exclusive || free || err != nil {
			t.Errorf("exclusive: %t, lock free: %t, error %v, want the lock to be held",
				exclusive, free, err)
		}
		return returned
	}}
	if got, err := mustPrepare(t, rs).Apply(ns, o); !errors.Is(err, refused) || got != (Result{}) {
		t.Errorf("result %+v, error %v, want only the error of BeforeChange", got, err)
	}
	checkEmpty(t, ns)
	returned = nil
	for _, want := range []struct {
		outcome Outcome
		calls   int
	}{{Created, 2}, {Unchanged, 2}} {
		got, err := mustPrepare(t, rs).Apply(ns, o)
		if err != nil || got.Outcome != want.outcome || calls != want.calls {
			t.Errorf("outcome %s, error %v after %d calls of BeforeChange, want %s after %d",
				got.Outcome, err, calls, want.outcome, want.calls)
		}
	}
}
