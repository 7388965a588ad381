// Package dirwatch reports that something has changed in directories, to those who then look at
// everything and have a timer as well.
package dirwatch

import (
	"errors"
	"io/fs"
	"slices"
)

// A Watch wakes somebody when something changes in directories. Directories that come, go or are
// replaced are found by renewing it. It is used by one goroutine at a time.
type Watch struct {
	wake func()
	dirs []string

	inotify *instance // nil where there is none to be had: nodes run out of inotify instances
	watched descriptors
}

// descriptors are those of directories that are watched.
type descriptors map[int]bool

// New returns a watch of directories that calls wake, from a goroutine of its own, when something
// has changed. Nothing is watched before [Watch.Renew].
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

// add watches a directory. One that is watched already stays so.
func (w *Watch) add(now descriptors, dir string) error {
	descriptor, err := w.inotify.watch(dir)
	if err == nil {
		now[descriptor] = true
	}
	return err
}

// renewals bounds how often links are followed again. Of one that changes so often there are
// events.
const renewals = 3

// addBehind watches directories to which links lead.
func (w *Watch) addBehind(now descriptors, links []string) error {
	var errs []error
	var before []string
	for range 1 + renewals {
		// A link that was changed before its directory was watched leads elsewhere now.
		behind := trails(links)
		if slices.Equal(behind, before) {
			break
		}
		for _, dir := range behind {
			if err := w.add(now, dir); !errors.Is(err, fs.ErrNotExist) { // where it went is found out next
				errs = append(errs, err)
			}
		}
		before = behind
	}
	return errors.Join(errs...)
}

// Close ends the watch: wake is not called any more when it returns.
func (w *Watch) Close() {
	if w.inotify != nil {
		w.inotify.close()
	}
}
