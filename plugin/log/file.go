package log

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// A file is a log file that several processes write and rotate. Every line is one write with
// O_APPEND, so that no line is lost or torn. Log packages that expect a single process open a new
// file without O_APPEND, and overwrite lines of other processes.
type file struct {
	options options.Log
	opened  *os.File // nil before the first write
}

// Write appends a line. The log serializes calls.
func (f *file) Write(line []byte) (int, error) {
	err := f.prepare(int64(len(line)))
	if f.opened == nil {
		return 0, fmt.Errorf("log file: %w", err)
	}
	// A file that cannot be rotated keeps growing. The next write tries to rotate it again.
	n, writeErr := f.opened.Write(line)
	return n, errors.Join(err, writeErr)
}

// Close closes the file. The next Write opens it again.
func (f *file) Close() error {
	if f.opened == nil {
		return nil
	}
	err := f.opened.Close()
	f.opened = nil
	return err
}

// prepare opens the file, and rotates it if a line of the given length would exceed the limit.
func (f *file) prepare(lineLength int64) error {
	if f.opened == nil {
		if err := f.reopen(); err != nil {
			return err
		}
	}
	info, err := f.opened.Stat()
	limit := int64(f.options.MaxMegabytes) << 20
	if err != nil || limit == 0 || info.Size() == 0 || info.Size()+lineLength <= limit {
		return err
	}
	return f.rotate(info)
}

// reopen closes the open file, and opens the file at the path. It creates a missing file and its
// directory.
func (f *file) reopen() error {
	path := f.options.File
	if err := errors.Join(f.Close(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		return err
	}
	// The type is checked after opening, because another process could replace the file between a
	// check and the opening. O_NONBLOCK: opening a named pipe without a reader would block.
	opened, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := opened.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return errors.Join(err, opened.Close())
	}
	f.opened = opened
	return nil
}

// rotate renames the open file, removes old rotated files and opens a new file. If another process
// has already renamed the open file, rotate only opens the new one. If another process is rotating
// the file at the moment, rotate does nothing.
func (f *file) rotate(opened os.FileInfo) error {
	if err := unix.Flock(int(f.opened.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err,
		unix.EWOULDBLOCK) {
		return nil // another process is rotating: write this line to the old file
	} else if err != nil {
		return err
	}
	// The lock belongs to the open file, and is released when it is closed.
	current, err := os.Stat(f.options.File)
	if err == nil && os.SameFile(opened, current) {
		err = errors.Join(os.Rename(f.options.File, f.rotatedName(time.Now())), f.prune())
	}
	return errors.Join(err, f.reopen())
}

// rotatedName returns the path to which a file is renamed that is rotated at the given time.
func (f *file) rotatedName(at time.Time) string {
	before, after := f.nameParts()
	return before + at.UTC().Format(rotationTime) + after
}

// rotationTime is the layout of the time in the names of rotated files. The names sort by age.
const rotationTime = "2006-01-02T15-04-05.000000"

// isRotationTime reports whether the text has exactly the layout rotationTime.
func isRotationTime(text string) bool {
	at, err := time.Parse(rotationTime, text)
	// The parser also accepts hours of one digit, and a comma.
	return err == nil && at.Format(rotationTime) == text
}

// nameParts returns the text before and after the time in the names of rotated files.
func (f *file) nameParts() (before, after string) {
	ext := filepath.Ext(f.options.File)
	return strings.TrimSuffix(f.options.File, ext) + "-", ext
}

// prune removes rotated files that exceed the number of backups or are too old. It keeps files of
// other programs with similar names.
func (f *file) prune() error {
	before, after := f.nameParts()
	dir, prefix := filepath.Split(before)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	var names []string
	for _, e := range entries {
		middle, hasPrefix := strings.CutPrefix(e.Name(), prefix)
		middle, hasSuffix := strings.CutSuffix(middle, after)
		if hasPrefix && hasSuffix && isRotationTime(middle) && e.Type().IsRegular() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(names) // the oldest first
	oldest := time.Now().AddDate(0, 0, -f.options.MaxDays)
	for i, name := range names {
		info, statErr := os.Stat(name)
		tooMany := f.options.Backups > 0 && len(names)-i > f.options.Backups
		tooOld := f.options.MaxDays > 0 && statErr == nil && info.ModTime().Before(oldest)
		if tooMany || tooOld {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return err
}
