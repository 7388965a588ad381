package thread

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// The main goroutine stays on the main thread only if init locks it.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // see above

func TestMain(m *testing.M) {
	if err := runFromMainThread(); err != nil {
		println("Run on the main thread:", err.Error())
		os.Exit(1)
	}
	runtime.UnlockOSThread()
	goleak.VerifyTestMain(m)
}

// runFromMainThread calls Run from the main thread with work that ends its thread. It calls Run
// both as a goroutine that is locked to the main thread and as an unlocked goroutine.
func runFromMainThread() error {
	if unix.Gettid() != unix.Getpid() {
		return errors.New("not on the main thread")
	}
	for i := range 200 {
		if i == 100 {
			runtime.UnlockOSThread()
			defer runtime.LockOSThread()
		}
		err := Run(Work{Enter: noop, Do: func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("work that ends its thread runs on the main thread")
			}
			return nil
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

func noop() error   { return nil }
func success() bool { return true }

func TestThreadEndsUnlessLeaveSucceeds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		leave func() bool
		ends  bool
	}{
		{"without Leave the thread ends", nil, true},
		{"a failed Leave ends the thread", func() bool { return false }, true},
		{"a Leave that panics ends the thread", func() bool { panic("leave") }, true},
		{"after a successful Leave the thread continues", success, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tid int
			func() {
				defer func() { _ = recover() }()
				_ = Run(Work{Enter: noop, Leave: tc.leave, Do: func() error {
					tid = unix.Gettid()
					return nil
				}})
			}()
			alive := func() bool {
				_, err := os.Lstat("/proc/self/task/" + strconv.Itoa(tid))
				return err == nil
			}
			if !tc.ends {
				if !alive() {
					t.Error("the thread has ended, although Leave succeeded")
				}
				return
			}
			rulestest.Eventually(t, fmt.Sprintf("thread %d ends", tid), func() bool {
				return !alive()
			})
		})
	}
}

func TestOutcomeReachesTheCaller(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name  string
		enter func() error
		do    func() error
		check func(t *testing.T, err error, recovered any, returned bool)
	}{
		{"an error of Do", noop, func() error {
			return boom
		}, func(t *testing.T, err error, _ any, _ bool) {
			if !errors.Is(err, boom) {
				t.Errorf("error %v, want %v", err, boom)
			}
		}},
		{
			"an error of Enter, and Do is not called", func() error {
				return boom
			}, func() error { panic("called") },
			func(t *testing.T, err error, _ any, _ bool) {
				if !errors.Is(err, boom) {
					t.Errorf("error %v, want %v", err, boom)
				}
			},
		},
		{"a panic with value and stack", noop, func() error {
			panic(boom)
		}, func(t *testing.T, _ error, v any, _ bool) {
			p, ok := v.(*Panic)
			if !ok || !errors.Is(p, boom) || p.Value != any(boom) ||
				!strings.Contains(p.Error(), "TestOutcome") {
				t.Errorf("recovered %v, want a *Panic of %v with the stack of the panic", v, boom)
			}
		}},
		{"a panic with nil", noop, func() error {
			panic(nil)
		}, func(t *testing.T, _ error, v any, _ bool) {
			if p, ok := v.(*Panic); !ok || p.Unwrap() == nil {
				t.Errorf("recovered %v, want a *Panic of a *runtime.PanicNilError", v)
			}
		}},
		{
			"Goexit", noop, func() error { runtime.Goexit(); return nil },
			func(t *testing.T, _ error, v any, returned bool) {
				if returned || v != nil {
					t.Errorf("returned %t, recovered %v, want Goexit in the caller", returned, v)
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var err error
			var recovered any
			returned, leaveCalled := false, false
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recovered = recover() }()
				err = Run(Work{Enter: tc.enter, Do: tc.do, Leave: func() bool {
					leaveCalled = true
					return true
				}})
				returned = true
			}()
			<-done
			tc.check(t, err, recovered, returned)
			if !leaveCalled {
				t.Error("Leave was not called")
			}
		})
	}
}
