// Package dirwatch tells that something has changed in directories, to those who then look at everything and have a timer as well.
package dirwatch

import (
	"errors"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// A Watch wakes somebody when something changes in directories. Directories that come, go or are replaced are found by renewing it. It is
// used by one goroutine at a time.
type Watch struct {
	wake func()
	dirs []string

	watcher *fsnotify.Watcher // nil where there is none to be had: nodes run out of inotify instances
	done    sync.WaitGroup
}

// New returns a watch of directories that calls wake, from a goroutine of its own, when something has changed. Nothing is watched before
// [Watch.Renew].
func New(wake func(), dirs ...string) *Watch { return &Watch{wake: wake, dirs: dirs} }

// Renew makes sure that all directories are watched from now on, and returns why some are not. It is called before each look at them: so
// no change is missed but that of a directory that was replaced since.
func (w *Watch) Renew() error {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.watcher = watcher
		w.done.Go(w.follow)
	}
	var errs []error
	for _, dir := range w.dirs {
		// A directory that is watched already stays so; one that was replaced under the same name is watched anew.
		errs = append(errs, w.watcher.Add(dir))
	}
	return errors.Join(errs...)
}

// follow passes events on. What they say does not matter, nor whether some are lost: whoever is woken looks at everything.
func (w *Watch) follow() {
	for {
		select {
		case _, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			w.wake()
		case _, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
			w.wake()
		}
	}
}

// Close ends the watch: wake is not called any more when it returns.
func (w *Watch) Close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing depends on it any more
		w.done.Wait()
	}
}
