package bypass_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/bypass"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func newDetector(t *testing.T, o bypass.Options) *bypass.Detector {
	t.Helper()
	d, err := bypass.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCauseIsDecidedByTimes covers a chain that is complete from 100 s to 200 s, incomplete until
// 300 s, and then complete except for an interruption that is repaired at 400 s.
func TestCauseIsDecidedByTimes(t *testing.T) {
	d := newDetector(t, bypass.Options{})
	for s := 100; s <= 200; s += 10 {
		d.NoteChain(bypass.ChainCheck{At: at(s), Complete: true, Repaired: s == 100})
	}
	for s := 210; s < 300; s += 10 {
		d.NoteChain(bypass.ChainCheck{At: at(s), Reason: "ReadOnlyFileSystem: conf"})
	}
	for s := 300; s <= 500; s += 10 {
		d.NoteChain(bypass.ChainCheck{At: at(s), Complete: true, Repaired: s == 300 || s == 400})
	}
	for _, row := range []struct {
		created time.Time
		kind    bypass.Kind
		words   []string
	}{
		{time.Time{}, bypass.Unknown, []string{"is unknown"}},
		{
			at(50), bypass.Early,
			[]string{
				"created at 2026-01-01T12:00:50Z", "before the agent found the plugin", "12:01:40Z",
			},
		},
		{at(101), bypass.Early, []string{"just after the plugin was added", "12:01:40Z"}},
		{
			at(106), bypass.Bypassed,
			[]string{
				"created the pod's sandbox at 2026-01-01T12:01:46Z without calling",
				"since 2026-01-01T12:01:40Z",
			},
		},
		{at(200), bypass.Bypassed, nil},
		{
			at(205), bypass.Gap,
			[]string{"last complete at 2026-01-01T12:03:20Z", "again at 2026-01-01T12:05:00Z"},
		},
		{at(250), bypass.Gap, nil},
		{at(302), bypass.Early, []string{"just after the plugin was added"}},
		{at(350), bypass.Bypassed, nil},
		{at(395), bypass.Gap, nil},
		{at(410), bypass.Bypassed, []string{"since 2026-01-01T12:06:40Z"}},
	} {
		got := d.Explain("", row.created)
		if got.Kind != row.kind {
			t.Errorf("created at %s: cause %s, want %s: %s", row.created, got.Kind, row.kind, got.Message)
		}
		for _, w := range row.words {
			if !strings.Contains(got.Message, w) {
				t.Errorf("created at %s: message %q, want the text %q", row.created, got.Message, w)
			}
		}
	}
}

func TestBeforeTheChainWasSeenNothingIsABypass(t *testing.T) {
	d := newDetector(t, bypass.Options{})
	if c := d.Explain("", at(0)); c.Kind != bypass.Early {
		t.Errorf("before any check: cause %+v, want early", c)
	}
	d.NoteChain(bypass.ChainCheck{At: at(1), Reason: "NoNetworkConfiguration"})
	if c := d.Explain("", at(2)); c.Kind != bypass.Early {
		t.Errorf("after a check of an incomplete chain: cause %+v, want early", c)
	}
}

// TestAPeriodBeginsAfterTheRepair covers a first installation that takes ten seconds.
func TestAPeriodBeginsAfterTheRepair(t *testing.T) {
	d := newDetector(t, bypass.Options{})
	d.NoteChain(bypass.ChainCheck{At: at(0), Done: at(10), Complete: true, Repaired: true})
	d.NoteChain(bypass.ChainCheck{At: at(60), Done: at(65), Complete: true})
	for created, want := range map[int]bypass.Kind{
		7: bypass.Early, 11: bypass.Early, 16: bypass.Bypassed, 60: bypass.Bypassed,
	} {
		if c := d.Explain("", at(created)); c.Kind != want {
			t.Errorf("created at %d s: cause %+v, want %s", created, c, want)
		}
	}
}

// TestOnlyAChainThatWasReadIsIncomplete checks that the cause is unknown for times at which the
// chain was not found incomplete.
func TestOnlyAChainThatWasReadIsIncomplete(t *testing.T) {
	complete := func(s int) bypass.ChainCheck { return bypass.ChainCheck{At: at(s), Complete: true} }
	for name, row := range map[string]struct {
		checks []bypass.ChainCheck
		kind   bypass.Kind // of a pod that was created at 150 s
		words  string
	}{
		"the chain is incomplete": {
			[]bypass.ChainCheck{complete(100), {At: at(140), Reason: "NotChainable: a"}},
			bypass.Gap, "chain was incomplete: it was last complete at 2026-01-01T12:01:40Z (NotChainable: a)",
		},
		"the journal cannot be locked": {
			[]bypass.ChainCheck{complete(100), {At: at(140), Unread: true, Reason: "InstallFailed: lock"}},
			bypass.Unknown, "could not read the node's CNI chain: it was last complete at 2026-01-01T12:01:40Z (InstallFailed: lock)",
		},
		"the chain cannot be read, and is complete again": {
			[]bypass.ChainCheck{complete(100), {At: at(140), Unread: true}, complete(200)},
			bypass.Unknown, "and again at 2026-01-01T12:03:20Z",
		},
		"the chain cannot be read, and is then repaired": {
			[]bypass.ChainCheck{
				complete(100),
				{At: at(140), Unread: true},
				{At: at(200), Complete: true, Repaired: true},
			},
			bypass.Gap, "was incomplete",
		},
		"the chain cannot be read, and is then incomplete": {
			[]bypass.ChainCheck{complete(100), {At: at(140), Unread: true}, {At: at(145)}},
			bypass.Gap, "was incomplete",
		},
	} {
		var elapsed time.Duration
		d := newDetector(t, bypass.Options{Elapsed: func() time.Duration { return elapsed }})
		for _, c := range row.checks {
			elapsed = c.At.Sub(noon)
			d.NoteChain(c)
		}
		if c := d.Explain("", at(150)); c.Kind != row.kind || !strings.Contains(c.Message, row.words) {
			t.Errorf("%s: cause %+v, want %s with %q", name, c, row.kind, row.words)
		}
	}
}

// TestDroppedPeriodsAreUnknown covers a conflicting writer that ends more periods than are kept.
func TestDroppedPeriodsAreUnknown(t *testing.T) {
	d := newDetector(t, bypass.Options{})
	const periods = 300
	for i := range periods {
		d.NoteChain(bypass.ChainCheck{At: at(10 * i), Complete: true, Repaired: true})
	}
	for created, want := range map[int]bypass.Kind{15: bypass.Unknown, 10*periods - 15: bypass.Gap} {
		if c := d.Explain("", at(created)); c.Kind != want {
			t.Errorf("created at %d s: cause %+v, want %s", created, c, want)
		}
	}
}

// TestNothingIsABypassIfThePluginIsOptional checks that a start without the plugin is not a bypass
// if the setting chained is false.
func TestNothingIsABypassIfThePluginIsOptional(t *testing.T) {
	d := newDetector(t, bypass.Options{Optional: true})
	d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true, Repaired: true})
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	if c := d.Explain("", at(50)); c.Kind != bypass.Optional ||
		!strings.Contains(c.Message, "chained is false") {
		t.Errorf("cause %+v, want optional, because chained is false", c)
	}
}

// TestChainIsReadBeforeABypassIsReported checks that the chain is read again to explain a pod that
// is younger than the last reading.
func TestChainIsReadBeforeABypassIsReported(t *testing.T) {
	for _, complete := range []bool{true, false} {
		var d *bypass.Detector
		readings := 0
		d = newDetector(t, bypass.Options{Check: func() {
			readings++
			d.NoteChain(bypass.ChainCheck{At: at(20), Complete: complete, Reason: "removed"})
		}})
		if d.Explain("", at(5)); readings != 0 {
			t.Error("Explain called Check before the first NoteChain")
		}
		d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true, Repaired: true})
		want := bypass.Gap
		if complete {
			want = bypass.Bypassed
		}
		if c := d.Explain("", at(15)); c.Kind != want || readings != 1 {
			t.Errorf("the chain is complete: %t; cause %v after %d readings, want %s after one",
				complete, c, readings, want)
		}
	}
}

// TestBypassIsReportedUntilAnADD checks that a bypass is reported, by the next agent too, until the
// plugin is called for a later pod.
func TestBypassIsReportedUntilAnADD(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bypass.json")
	changes := 0
	o := bypass.Options{File: path, Changed: func() { changes++ }}
	d := newDetector(t, o)
	d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true, Repaired: true})
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	noteBypass := func(d *bypass.Detector, uid string, created time.Time, want bool) {
		t.Helper()
		if isNew, err := d.NoteBypass("shop/"+uid, uid, created); err != nil || isNew != want {
			t.Errorf("NoteBypass of pod %s: new: %t, error %v; want new: %t", uid, isNew, err, want)
		}
	}
	noteBypass(d, "a", at(50), true)
	noteBypass(d, "a", at(50), false)
	noteBypass(d, "b", at(60), true)
	noteBypass(d, "older", at(55), true) // audited later
	noteBypass(d, "a", at(50), false)
	if b, bypassed := d.Current(); !bypassed || b.Pod != "shop/b" || b.Pods != 3 ||
		!b.Since.Equal(at(0)) {
		t.Errorf("bypassed: %t, %+v, want three pods, of which shop/b is the last", bypassed, b)
	}
	d = newDetector(t, o)
	b, bypassed := d.Current()
	if !bypassed || b.Pods != 3 || !strings.Contains(b.String(), "restart the container runtime") {
		t.Errorf("bypassed: %t, %v, want three pods and the remedy from the next agent", bypassed, b)
	}
	noteBypass(d, "b", at(60), false)
	// The last bypass is at 60 s. An ADD before 65 s, which is reloadTime later, does not end it.
	for _, early := range []time.Time{at(10), at(59), at(64)} {
		if err := d.NoteAdd(early); err != nil {
			t.Error(err)
		}
		if _, bypassed := d.Current(); !bypassed {
			t.Errorf("the bypass was ended by an ADD at %s", early)
		}
	}
	if err := d.NoteAdd(at(66)); err != nil {
		t.Error(err)
	}
	if _, bypassed := d.Current(); bypassed || changes != 4 {
		t.Errorf("after a later ADD: bypassed: %t after %d changes, want false after 4", bypassed, changes)
	}
	if _, bypassed := newDetector(t, o).Current(); bypassed {
		t.Error("the next agent still reports the bypass")
	}
}

// TestACountedSandboxBeginsNoOtherBypass covers a pod that stays without redirection and is audited
// again after the bypass has ended, and then gets another sandbox without the plugin.
func TestACountedSandboxBeginsNoOtherBypass(t *testing.T) {
	d := newDetector(t, bypass.Options{})
	d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true})
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	for _, step := range []struct {
		created int // 0 for an ADD at 70 s
		isNew   bool
		pods    int
	}{{50, true, 1}, {0, false, 0}, {50, false, 0}, {80, true, 1}, {80, false, 1}} {
		isNew := false
		var err error
		if step.created == 0 {
			err = d.NoteAdd(at(70))
		} else {
			isNew, err = d.NoteBypass("shop/a", "a", at(step.created))
		}
		if b, _ := d.Current(); err != nil || isNew != step.isNew || b.Pods != step.pods {
			t.Errorf("%+v: new: %t, %d pods, error %v", step, isNew, b.Pods, err)
		}
	}
}

// TestAReportedADDIsNoBypass covers an ADD whose record could not be stored, and a later sandbox of
// the pod that the runtime creates without the plugin.
func TestAReportedADDIsNoBypass(t *testing.T) {
	d := newDetector(t, bypass.Options{})
	d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true})
	d.NoteChain(bypass.ChainCheck{At: at(200), Complete: true})
	d.NoteSandboxAdd("a", at(52))
	for _, row := range []struct {
		uid     string
		created time.Time
		want    bypass.Kind
	}{
		{"a", at(50), bypass.Called},
		{"b", at(50), bypass.Bypassed},
		{"a", at(150), bypass.Bypassed},
		{"a", time.Time{}, bypass.Unknown},
	} {
		if c := d.Explain(row.uid, row.created); c.Kind != row.want {
			t.Errorf("pod %s, created at %s: cause %+v, want %s", row.uid, row.created, c, row.want)
		}
	}
}

// TestCountedPodsAreBounded checks that a pod counts again after 1024 others.
func TestCountedPodsAreBounded(t *testing.T) {
	d := newDetector(t, bypass.Options{})
	note := func(pod int, want bool) {
		t.Helper()
		uid := strconv.Itoa(pod)
		if isNew, err := d.NoteBypass("shop/"+uid, uid, at(0)); err != nil || isNew != want {
			t.Errorf("pod %d: new: %t, error %v; want new: %t", pod, isNew, err, want)
		}
	}
	for pod := range 1025 {
		note(pod, true)
	}
	note(1, false)
	note(0, true)
}

func TestInvalidFileIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bypass.json")
	for _, content := range []string{"", "{", "{}", "null", `{"pod":"shop/a"}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := bypass.New(bypass.Options{File: path})
		if _, bypassed := d.Current(); err == nil || bypassed {
			t.Errorf("%q: error %v, bypassed: %t, want an error and no bypass", content, err,
				bypassed)
		}
	}
}
