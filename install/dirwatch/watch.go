// Package dirwatch reports that a file in a set of directories has changed. It does not report
// which file: it is for callers that then check all files, and also check them periodically.
package dirwatch

import (
	"errors"
	"io/fs"
	"slices"
)

// A Watch reports changes in directories. [Watch.Renew] detects directories that were created,
// removed or replaced. A Watch must be used by one goroutine at a time.
type Watch struct {
	wake func()
	dirs []string

	inotify *instance // nil until Renew can create it: nodes run out of inotify instances
	watched descriptors
}

// descriptors is a set of watch descriptors of directories.
type descriptors map[int]bool

// New returns a watch of directories that calls wake, in its own goroutine, after a change. The
// first call of [Watch.Renew] starts it.
func New(wake func(), dirs ...string) *Watch { return &Watch{wake: wake, dirs: dirs} }

// Renew watches the directories, and the directories on the paths of the given symbolic links. It
// stops watching directories that no longer have one of these paths. The error names directories
// that cannot be watched; the next call tries again. Call Renew before each check of the files, so
// that no change after the check is missed, except in a directory that has been replaced since.
func (w *Watch) Renew(links ...string) error {
	if w.inotify == nil {
		opened, err := open(w.wake)
		if err != nil {
			return err
		}
		w.inotify = opened
	}
	current := descriptors{}
	var errs []error
	for _, dir := range w.dirs {
		errs = append(errs, w.add(current, dir))
	}
	errs = append(errs, w.addLinkDirs(current, links))
	for descriptor := range w.watched {
		if !current[descriptor] {
			w.inotify.unwatch(descriptor)
		}
	}
	w.watched = current
	return errors.Join(errs...)
}

// add watches a directory, and adds its descriptor to current.
func (w *Watch) add(current descriptors, dir string) error {
	descriptor, err := w.inotify.watch(dir)
	if err == nil {
		current[descriptor] = true
	}
	return err
}

// maxFollowed is the maximum number of times that links are followed. A few are sufficient, because
// changes in a directory that is watched already cause an event.
const maxFollowed = 4

// addLinkDirs watches the directories on the paths of links. It follows the links again until the
// directories stay the same, because a link may change before its directory is watched.
func (w *Watch) addLinkDirs(current descriptors, links []string) error {
	var errs []error
	var last []string
	for range maxFollowed {
		dirs := linkDirs(links)
		if slices.Equal(dirs, last) {
			break
		}
		for _, dir := range dirs {
			// If the directory no longer exists, the next iteration finds its new path.
			if err := w.add(current, dir); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		last = dirs
	}
	return errors.Join(errs...)
}

// Close ends the watch. Wake is not called after Close returns.
func (w *Watch) Close() {
	if w.inotify != nil {
		w.inotify.close()
	}
}
