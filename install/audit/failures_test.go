package audit_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
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
		if w.states() != "1 unknown" || s.checked > 60 || s.applied > 0 ||
			w.metric("sluice_audits_total{error}") != float64(s.checked) {
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
			w.put(web, podcache.PodStatus{Phase: "Pending"})
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

// A pod of which DEL has forgotten the record and taken the addresses is not told of.
func TestASandboxThatIsTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		w := node(t, nil, func(w *world) {
			w.home(web).addresses = nil
			w.put(web, podcache.PodStatus{Phase: "Running"})
		})
		pass(10 * time.Minute)
		if w.told() != "" || w.states() != "1 unknown" {
			t.Errorf("%s, told %s", w.states(), w.told())
		}
	})
}

// Where nobody knows what pods should have, that is counted: they do not seem to be of no mesh.
func TestRecordsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := node(t, nil, func(w *world) {
			w.options.Records = record.In(dir)
			w.redirected(meshPod("web"))
			bare := meshPod("bare")
			bare.Metadata.Annotations = nil
			w.put(bare, running)
		})
		if w.states() != "1 redirected" {
			t.Fatal(w.states())
		}
		kept := filepath.Join(dir, "attachments")
		if err := errors.Join(os.RemoveAll(kept), os.WriteFile(kept, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		if w.states() != "1 unknown" || w.metric("sluice_audits_total{error}") == 0 {
			t.Errorf("%s, counted %v", w.states(), w.counted)
		}
	})
}
