// Package dirwatch reports changes in directories to callers that then check everything and also
// have a timer.
package dirwatch

import (
	"errors"
	"io/fs"
	"slices"
)

// A Watch reports changes in directories. Directories that appear, disappear or are replaced are
// found by renewing it. It must be used by one goroutine at a time.
type Watch struct {
	wake func()
	dirs []string

	inotify *instance // nil where there is none to be had: nodes run out of inotify instances
	watched descriptors
}

// descriptors contains the descriptors of watched directories.
type descriptors map[int]bool

// New returns a watch of directories that calls wake, in its own goroutine, after a change. Nothing
// is watched before [Watch.Renew].
func New(wake func(), dirs ...string) *Watch { return &Watch{wake: wake, dirs: dirs} }

// Renew makes sure that all directories are watched from now on, and with them those through which
// symbolic links lead to the files that they name, for links in these directories. What has none of
// these names any more is not watched any more. It returns why some are not watched; they may be
// when it is called next. It is called before each look at them: so no change is missed but that of
// a directory that was replaced since.
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
		behind := trails(links)
		if slices.Equal(behind, before) {
			break
		}
		for _, dir := range behind {
			// where it went is found out next
			if err := w.add(now, dir); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		before = behind
	}
	return errors.Join(errs...)
}

// Close ends the watch: wake is not called after it returns.
func (w *Watch) Close() {
	if w.inotify != nil {
		w.inotify.close()
	}
}
