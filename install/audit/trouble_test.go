package audit_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/serve/mirror"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// A namespace that cannot be read is counted, and looked at again without haste.
func TestANamespaceThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *world) {
			s = w.redirected(meshPod("web"))
			s.unreadable = errors.New("operation not permitted")
		})
		pass(10 * time.Minute)
		if w.states() != "1 unknown" || s.checked > 60 || s.applied > 0 || w.metric("sluice_audits_total{error}") != float64(s.checked) {
			t.Errorf("%s, compared %d times, counted %v", w.states(), s.checked, w.counted)
		}
		w.set(func() { s.unreadable = nil })
		pass(time.Minute)
		if w.states() != "1 redirected" {
			t.Error(w.states())
		}
	})
}

// A pod that has no address yet is not told of, and gets its redirection when it has one.
func TestAddressesThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Status = decide.PodStatus{}
		var s *space
		w := node(t, nil, func(w *world) {
			s = w.home(web)
			s.addresses = nil
			w.put(web, mirror.Life{Phase: "Pending"})
		})
		if w.told() != "" {
			t.Error("told too early")
		}
		w.set(func() { s.addresses = []netip.Addr{netip.MustParseAddr("10.0.0.7")} })
		pass(time.Minute)
		if w.states() != "1 redirected" || s.applied != 1 {
			t.Errorf("%s, applied %d times", w.states(), s.applied)
		}
	})
}
