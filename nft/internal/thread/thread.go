// Package thread runs a function on an operating system thread with changed attributes, such as the
// namespace or the credentials of the thread. No other goroutine runs on the thread until its
// attributes are restored.
package thread

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Panic is the value with which [Run] panics if the function panics. It preserves the stack of the
// goroutine that ran the function.
type Panic struct {
	Value any    // the value of the function's panic
	Stack []byte // the stack of the function's goroutine, from [debug.Stack]
}

// Error returns the value and the stack: the runtime prints this text when the panic ends the
// program.
func (p *Panic) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value if it is an error, otherwise nil.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Work is a function to run on a thread, with the functions that change and
// restore the thread's attributes.
type Work struct {
	// Enter changes the thread. If Enter fails, Do is not called.
	Enter func() error
	// Do runs on the changed thread. If Do panics, Run panics with a *[Panic]. If Do
	// calls [runtime.Goexit], Run calls it too.
	Do func() error
	// Leave restores the thread's attributes and reports whether it succeeded. It is
	// called even if Enter fails. If it fails or is nil, the thread is terminated.
	Leave func() bool
}

// Run runs w on a locked thread other than the main thread of the process, waits
// until w is complete, and returns the error of Enter or Do. It is safe for
// concurrent use, and may be called by a goroutine that is locked to a thread.
//
// The main thread is not used because it cannot be terminated: when a locked
// goroutine exits there, the runtime parks the thread forever, and /proc/self
// keeps showing the changed attributes.
func Run(w Work) error { return (<-Start(w)).Return() }

// Start starts w like [Run], and returns a channel that delivers the outcome once.
func Start(w Work) <-chan Outcome {
	done := make(chan Outcome, 1)
	go w.run(done, nil)
	return done
}

// Outcome is the result of a [Work]: an error, a panic or a Goexit.
type Outcome struct {
	err      error
	panicked *Panic
	exited   bool
}

// Return repeats the outcome in the calling goroutine: it returns the error,
// panics or calls [runtime.Goexit].
func (o Outcome) Return() error {
	switch {
	case o.panicked != nil:
		panic(o.panicked)
	case o.exited:
		runtime.Goexit()
	}
	return o.err
}

// run runs w on the thread of this goroutine and unlocks the thread if Leave
// succeeds. If this is the main thread, run starts a second goroutine that runs w,
// and passes it a channel started, which the second goroutine closes when it is
// locked to another thread. In the first goroutine, started is nil.
func (w Work) run(done chan<- Outcome, started chan<- struct{}) {
	runtime.LockOSThread()
	switch {
	case started != nil:
		close(started)
	case unix.Gettid() == unix.Getpid():
		// This goroutine has locked the main thread, so the second one runs on another thread. The
		// second one sends the outcome to the caller directly. If this goroutine forwarded the
		// outcome, the scheduler would run the caller and its next Run on the main thread too: a
		// Run would take 30 µs instead of 13.
		started := make(chan struct{})
		go w.run(done, started)
		<-started
		runtime.UnlockOSThread()
		return
	}
	out, isRestored := Outcome{exited: true}, false
	defer func() {
		if v := recover(); v != nil {
			out = Outcome{panicked: &Panic{Value: v, Stack: debug.Stack()}}
		}
		if isRestored {
			runtime.UnlockOSThread()
		}
		done <- out
	}()
	if w.Leave != nil {
		defer func() { isRestored = w.Leave() }()
	}
	err := w.Enter()
	if err == nil {
		err = w.Do()
	}
	out = Outcome{err: err}
}
