package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// SetChoose replaces the function that chooses the backend of the kernel.
func (a *Agent) SetChoose(choose func(compat.BackendName) (compat.Backend, error)) {
	a.kernel.choose = choose
}

// HoldExitReport makes the report of an exit wait until its context is done. It returns a function
// that makes the agent exit as if it needed new mounts, and a channel that is closed when the
// report has begun. It must be called before Run.
func (a *Agent) HoldExitReport() (exit func(), reporting <-chan struct{}) {
	begun := make(chan struct{})
	var once sync.Once // events may also be sent while the agent stops
	a.events.send = func(ctx context.Context, _ cluster.Event) error {
		if ctx.Err() != nil || !a.stopping.Load() {
			return errors.New("the agent is not exiting")
		}
		once.Do(func() { close(begun) })
		<-ctx.Done()
		return ctx.Err()
	}
	a.events.notePast(problemEvent{reason: "Test", message: "a problem"})
	return func() { a.exit <- errMounts }, begun
}
