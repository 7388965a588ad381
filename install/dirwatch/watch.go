// Package dirwatch reports that something in a set of directories has changed. It is for callers
// that then check all files, and also check them periodically.
package dirwatch

import (
	"errors"
	"io/fs"
	"slices"
)

// A Watch reports changes in directories. [Watch.Renew] detects directories that were created,
// removed or replaced. It must be used by one goroutine at a time.
type Watch struct {
	wake func()
	dirs []string

	inotify *instance // nil if the kernel provides none: nodes run out of inotify instances
	watched descriptors
}

// descriptors contains the descriptors of watched directories.
type descriptors map[int]bool

// New returns a watch of directories that calls wake, in its own goroutine, after a change. Nothing
// is watched before [Watch.Renew].
func New(wake func(), dirs ...string) *Watch { return &Watch{wake: wake, dirs: dirs} }

// Renew watches the directories, and the directories on the paths of the given symbolic links. It
// stops watching directories that no longer have one of these paths. The error names directories
// that cannot be watched; the next call tries again. Call Renew before each check of the files:
// then only changes of a directory that was replaced since are missed.
func (w *Watch) Renew(links ...string) error {
	if w.inotify == nil {
		opened, err := open(w.wake)
		if err != nil {
			return err
		}
		w.inotify = opened
	}
	now := descriptors{}
	var errs []error
	for _, dir := range w.dirs {
		errs = append(errs, w.add(now, dir))
	}
	errs = append(errs, w.addBehind(now, links))
	for descriptor := range w.watched {
		if !now[descriptor] {
			w.inotify.drop(descriptor)
		}
	}
	w.watched = now
	return errors.Join(errs...)
}

// add watches a directory, unless it is already watched.
func (w *Watch) add(now descriptors, dir string) error {
	descriptor, err := w.inotify.watch(dir)
	if err == nil {
		now[descriptor] = true
	}
	return err
}

// renewals is the maximum number of times that links are followed again. Links that change more
// often cause events.
const renewals = 3

// addBehind watches directories on the paths of links.
func (w *Watch) addBehind(now descriptors, links []string) error {
	var errs []error
	var before []string
	for range 1 + renewals {
		// A link that changed before its directory was watched has another target now.
		behind := linkDirs(links)
		if slices.Equal(behind, before) {
			break
		}
		for _, dir := range behind {
			// the next iteration finds its new path
			if err := w.add(now, dir); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		before = behind
	}
	return errors.Join(errs...)
}

// Close ends the watch. Wake is not called after Close returns.
func (w *Watch) Close() {
	if w.inotify != nil {
		w.inotify.close()
	}
}
