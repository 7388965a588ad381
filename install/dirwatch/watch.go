// Package dirwatch tells that something has changed in directories, to those who then look at everything and have a timer as well.
package dirwatch

import (
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// A Watch wakes somebody when something changes in directories. Directories that come, go or are replaced are found by renewing it. It is
// used by one goroutine at a time.
type Watch struct {
	wake func()
	dirs []string

	watcher *fsnotify.Watcher // nil where there is none to be had: nodes run out of inotify instances
	behind  []string          // watched directories to which links lead
	done    sync.WaitGroup
}

// New returns a watch of directories that calls wake, from a goroutine of its own, when something has changed. Nothing is watched before
// [Watch.Renew].
func New(wake func(), dirs ...string) *Watch { return &Watch{wake: wake, dirs: dirs} }

// Renew makes sure that all directories are watched from now on, and with them those through which symbolic links lead to the files that
// they name, for links in these directories. It returns why some are not. It is called before each look at them: so no change is missed
// but that of a directory that was replaced since.
func (w *Watch) Renew(links ...string) error {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.watcher = watcher
		w.done.Go(w.follow)
	}
	behind := trails(links)
	for _, dir := range w.behind {
		if !slices.Contains(behind, dir) {
			// First of all, since another name of the same directory is the same watch. One that was removed is not watched any more.
			_ = w.watcher.Remove(dir)
		}
	}
	var errs []error
	for _, dir := range w.dirs {
		// A directory that is watched already stays so; one that was replaced under the same name is watched anew.
		errs = append(errs, w.watcher.Add(dir))
	}
	w.behind = nil
	errs = append(errs, w.addBehind(behind))
	for range renewals {
		// A link that was changed before its directory was watched leads elsewhere now.
		next := trails(links)
		if slices.Equal(next, behind) {
			break
		}
		errs = append(errs, w.addBehind(next))
		behind = next
	}
	return errors.Join(errs...)
}

// renewals bounds how often links are followed again. Of one that changes so often there are events.
const renewals = 3

// addBehind watches directories to which links lead.
func (w *Watch) addBehind(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if slices.Contains(w.behind, dir) {
			continue
		}
		if err := w.watcher.Add(dir); err == nil {
			w.behind = append(w.behind, dir)
		} else if !errors.Is(err, fs.ErrNotExist) { // where it went is found out next
			errs = append(errs, err)
		}
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
