package node

import (
	"errors"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// A watch wakes somebody when something changes in directories. Directories that come, go or are replaced are found by renewing it.
type watch struct {
	wake func()
	dirs []string

	watcher *fsnotify.Watcher // nil where there is none to be had: nodes run out of inotify instances
	done    sync.WaitGroup
}

func newWatch(wake func(), dirs ...string) *watch { return &watch{wake: wake, dirs: dirs} }

// renew makes sure that all directories are watched, and returns why some are not.
func (w *watch) renew() error {
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
func (w *watch) follow() {
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

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing depends on it any more
		w.done.Wait()
	}
}
