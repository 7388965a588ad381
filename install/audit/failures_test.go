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

// TestANamespaceThatCannotBeRead checks that the failure is counted, and that retries are rare.
func TestANamespaceThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *testEnv) {
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

// TestAddressesThatComeLater checks that a pod without an address is not reported, and is
// redirected once it has one.
func TestAddressesThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Status = decide.PodStatus{}
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.home(web)
			s.addresses = nil
			w.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		if w.told() != "" {
			t.Error("reported too early")
		}
		w.set(func() { s.addresses = []netip.Addr{netip.MustParseAddr("10.0.0.7")} })
		pass(time.Minute)
		if w.states() != "1 redirected" || s.applied != 1 {
			t.Errorf("%s, applied %d times", w.states(), s.applied)
		}
	})
}

// TestASandboxThatIsTakenDown checks that a pod whose record and addresses DEL has removed is not
// reported.
func TestASandboxThatIsTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		w := node(t, nil, func(w *testEnv) {
			w.home(web).addresses = nil
			w.put(web, podcache.PodStatus{Phase: "Running"})
		})
		pass(10 * time.Minute)
		if w.told() != "" || w.states() != "1 unknown" {
			t.Errorf("%s, told %s", w.states(), w.told())
		}
	})
}

// TestRecordsThatCannotBeRead checks that pods whose desired state is unknown are counted as such,
// instead of as pods outside of the mesh.
func TestRecordsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := node(t, nil, func(w *testEnv) {
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
