package bypass_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/bypass"
)

// TestAmbiguousTimesAreUnknownAfterTheClockWasSet sets the clock after 3600 s. The chain is
// complete from 0 s to 7200 s of real time. A row's name says in which direction the clock is set,
// and which time the clock showed when the sandbox was created.
func TestAmbiguousTimesAreUnknownAfterTheClockWasSet(t *testing.T) {
	const hour = 3600
	for _, row := range []struct {
		name    string
		step    int // in seconds
		created int // when the sandbox was created, in seconds by the clock
		kind    bypass.Kind
	}{
		{"back: before the chain", -hour / 2, -10, bypass.Early},
		{"back: a time that occurs once, before the step", -hour / 2, 1000, bypass.Bypassed},
		{"back: a time that occurs twice", -hour / 2, 2000, bypass.Unknown},
		{"back: a time that occurs once, after the step", -hour / 2, 4000, bypass.Bypassed},
		{"back to before the chain: a time that occurs twice", -2 * hour, -1000, bypass.Unknown},
		{"forward: before the step", 2 * hour, 1000, bypass.Bypassed},
		{"forward: a time that was skipped", 2 * hour, 2 * hour, bypass.Unknown},
		{"forward: after the step", 2 * hour, 3*hour + 100, bypass.Bypassed},
	} {
		t.Run(row.name, func(t *testing.T) {
			var elapsed int
			d := newDetector(t, bypass.Options{
				Elapsed: func() time.Duration { return time.Duration(elapsed) * time.Second },
			})
			for ; elapsed <= 2*hour; elapsed += 10 {
				shown := elapsed
				if elapsed > hour {
					shown += row.step
				}
				d.NoteChain(bypass.ChainCheck{At: at(shown), Complete: true, Repaired: elapsed == 0})
			}
			if c := d.Explain("", at(row.created)); c.Kind != row.kind {
				t.Errorf("cause %s, want %s: %s", c.Kind, row.kind, c.Message)
			}
		})
	}
}

// TestADDEndsABypassAfterTheClockWasSetBack covers an ADD that is later than the bypass, and
// earlier by the clock. If the ADD did not end the bypass, the bypass would last until the clock
// reaches its time again.
func TestADDEndsABypassAfterTheClockWasSetBack(t *testing.T) {
	var elapsed time.Duration
	d := newDetector(t, bypass.Options{Elapsed: func() time.Duration { return elapsed }})
	d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true, Repaired: true})
	elapsed = 100 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	if _, err := d.NoteBypass("shop/a", "a", at(90)); err != nil {
		t.Fatal(err)
	}
	elapsed = 110 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(110 - 7200), Complete: true})
	elapsed = 120 * time.Second
	if err := d.NoteAdd(at(120 - 7200)); err != nil {
		t.Fatal(err)
	}
	if b, bypassed := d.Current(); bypassed {
		t.Errorf("after the ADD: bypass %v, want none", b)
	}
}

// TestADDEndsAStoredBypassInTheFuture covers a clock that was set back while no agent was running,
// so that the stored time of the bypass is in the future.
func TestADDEndsAStoredBypassInTheFuture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bypass.json")
	earlier := newDetector(t, bypass.Options{File: file})
	earlier.NoteChain(bypass.ChainCheck{At: at(7000), Complete: true, Repaired: true})
	if _, err := earlier.NoteBypass("shop/a", "a", at(7200)); err != nil {
		t.Fatal(err)
	}
	d := newDetector(t, bypass.Options{File: file})
	if _, bypassed := d.Current(); !bypassed {
		t.Fatal("the second detector has no bypass, want the stored one")
	}
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	if err := d.NoteAdd(at(110)); err != nil {
		t.Fatal(err)
	}
	if b, bypassed := d.Current(); bypassed {
		t.Errorf("after the ADD: bypass %v, want none", b)
	}
}

// TestAnADDBeforeTheClockWasSetBackEndsNoBypass checks that the time of an ADD before the clock was
// set back, which is in the future now, does not end a later bypass.
func TestAnADDBeforeTheClockWasSetBackEndsNoBypass(t *testing.T) {
	var elapsed time.Duration
	d := newDetector(t, bypass.Options{Elapsed: func() time.Duration { return elapsed }})
	d.NoteChain(bypass.ChainCheck{At: at(7200), Complete: true, Repaired: true})
	add := func(seconds int, wantBypassed bool) {
		t.Helper()
		if err := d.NoteAdd(at(seconds)); err != nil {
			t.Fatal(err)
		}
		if b, bypassed := d.Current(); bypassed != wantBypassed {
			t.Errorf("after the ADD at %d s: bypassed %t, want %t: %v", seconds, bypassed, wantBypassed, b)
		}
	}
	add(7201, false)
	elapsed = 10 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(10), Complete: true})
	elapsed = 100 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	if _, err := d.NoteBypass("shop/a", "a", at(90)); err != nil {
		t.Fatal(err)
	}
	add(7201, true) // the same ADD again
	add(110, false)
}

// TestAnOldADDEndsNoStoredBypass covers a clock that was set back while no agent was running: the
// time of the last ADD, which was before the bypass, is in the future.
func TestAnOldADDEndsNoStoredBypass(t *testing.T) {
	for _, addFirst := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "bypass.json")
		earlier := newDetector(t, bypass.Options{File: file})
		earlier.NoteChain(bypass.ChainCheck{At: at(7000), Complete: true})
		if _, err := earlier.NoteBypass("shop/a", "a", at(7200)); err != nil {
			t.Fatal(err)
		}
		var elapsed time.Duration
		d := newDetector(t, bypass.Options{
			File: file, Elapsed: func() time.Duration { return elapsed },
		})
		add := func(seconds int, wantBypassed bool) {
			t.Helper()
			if err := d.NoteAdd(at(seconds)); err != nil {
				t.Fatal(err)
			}
			if b, bypassed := d.Current(); bypassed != wantBypassed {
				t.Errorf("after the ADD at %d s: bypassed %t, want %t: %v", seconds, bypassed, wantBypassed, b)
			}
		}
		if addFirst {
			add(7100, true)
		}
		d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
		elapsed = 20 * time.Second
		add(7100, true)
		add(7100, true)
		add(119, false)
	}
}

// TestKnownPodsAreNotCountedAgainAfterTheClockWasSetBack checks that the creation times of pods,
// which do not change when the clock is set, are compared with each other.
func TestKnownPodsAreNotCountedAgainAfterTheClockWasSetBack(t *testing.T) {
	var elapsed time.Duration
	d := newDetector(t, bypass.Options{Elapsed: func() time.Duration { return elapsed }})
	d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true})
	elapsed = 100 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	note := noteBypasses(t, d)
	note("a", 85, true)
	note("b", 90, true)
	elapsed = 110 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(90), Complete: true}) // set back by 20 s
	note("a", 85, false)
	note("b", 90, false)
	note("c", 200, true)
	if b, _ := d.Current(); b.Pods != 3 || !b.Created.Equal(at(200)) {
		t.Errorf("bypass %+v, want 3 pods, the last one created at 200 s", b)
	}
}

// TestABypassAfterTheClockWasSetIsCounted covers a pod that is created after the clock was set
// back, and before the last bypass by the clock. An ADD before it does not end the bypass.
func TestABypassAfterTheClockWasSetIsCounted(t *testing.T) {
	var elapsed time.Duration
	d := newDetector(t, bypass.Options{Elapsed: func() time.Duration { return elapsed }})
	d.NoteChain(bypass.ChainCheck{At: at(0), Complete: true})
	elapsed = 100 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(100), Complete: true})
	note := noteBypasses(t, d)
	const hour = 3600
	note("a", 90, true)
	elapsed = 110 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(110 - hour), Complete: true})
	note("b", 130-hour, true)
	if err := d.NoteAdd(at(120 - hour)); err != nil {
		t.Error(err)
	}
	if b, bypassed := d.Current(); !bypassed || b.Pods != 2 || b.Pod != "shop/b" {
		t.Errorf("bypassed: %t, %+v, want 2 pods, of which shop/b is the last", bypassed, b)
	}
	elapsed = 200 * time.Second
	d.NoteChain(bypass.ChainCheck{At: at(200), Complete: true}) // set forward
	// The start time of a process changes with the clock.
	note("b", 130, false)
	note("b", 210, true)
}

// noteBypasses returns a function that records a bypass of a pod whose sandbox was created at the
// given second, and checks whether it is a new one.
func noteBypasses(t *testing.T, d *bypass.Detector) func(pod string, created int, want bool) {
	return func(pod string, created int, want bool) {
		t.Helper()
		isNew, err := d.NoteBypass("shop/"+pod, pod, at(created))
		if err != nil || isNew != want {
			t.Errorf("pod %s: new: %t, error %v; want new: %t", pod, isNew, err, want)
		}
	}
}
