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
// O_APPEND, so that no line is lost or torn. Packages that rotate for a single process open a new
// file without O_APPEND, and overwrite lines of other processes.
type file struct {
	options options.Log
	open    *os.File // nil before the first write
}

// Write appends a line. The log serialises calls.
func (f *file) Write(line []byte) (int, error) {
	err := f.prepare(int64(len(line)))
	if f.open == nil {
		return 0, fmt.Errorf("log file: %w", err)
	}
	// A file that cannot be rotated keeps growing. The next process tries again.
	n, writeErr := f.open.Write(line)
	return n, errors.Join(err, writeErr)
}

// Close closes the file. It may be used again.
func (f *file) Close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}

// prepare opens the file, and rotates it if more bytes would exceed the limit.
func (f *file) prepare(more int64) error {
	if f.open == nil {
		if err := f.reopen(); err != nil {
			return err
		}
	}
	info, err := f.open.Stat()
	most := int64(f.options.MaxMegabytes) << 20
	if err != nil || most == 0 || info.Size() == 0 || info.Size()+more <= most {
		return err
	}
	return f.rotate(info)
}

func (f *file) reopen() error {
	path := f.options.File
	if err := errors.Join(f.Close(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		return err
	}
	// Only opening shows that it is not a file. O_NONBLOCK: a named pipe without a reader would
	// block.
	open, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := open.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return errors.Join(err, open.Close())
	}
	f.open = open
	return nil
}

// rotate renames the open file, unless another process is doing so or has done so.
func (f *file) rotate(opened os.FileInfo) error {
	if err := unix.Flock(int(f.open.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err,
		unix.EWOULDBLOCK) {
		return nil // what follows is in the old file
	} else if err != nil {
		return err
	}
	// The lock belongs to the open file, and is released when it is closed.
	now, err := os.Stat(f.options.File)
	if err == nil && os.SameFile(opened, now) {
		err = errors.Join(os.Rename(f.options.File, f.rotated(time.Now())), f.prune())
	}
	return errors.Join(err, f.reopen())
}

// rotated returns the name of the rotated file.
func (f *file) rotated(at time.Time) string {
	before, after := f.parts()
	return before + at.UTC().Format(rotationTime) + after
}

// rotationTime is the layout of the time in the names of rotated files. They sort by age.
const rotationTime = "2006-01-02T15-04-05.000000"

// isRotationTime reports whether rotated writes so.
func isRotationTime(text string) bool {
	at, err := time.Parse(rotationTime, text)
	// The parser also accepts hours of one digit, and a comma.
	return err == nil && at.Format(rotationTime) == text
}

// parts returns what precedes and follows the time in the names of rotated files.
func (f *file) parts() (string, string) {
	ext := filepath.Ext(f.options.File)
	return strings.TrimSuffix(f.options.File, ext) + "-", ext
}

// prune removes rotated files that are too many or too old. Files of other programs may have
// similar names.
func (f *file) prune() error {
	before, after := f.parts()
	dir, prefix := filepath.Split(before)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	var names []string
	for _, e := range entries {
		middle, begins := strings.CutPrefix(e.Name(), prefix)
		middle, ends := strings.CutSuffix(middle, after)
		if begins && ends && isRotationTime(middle) && e.Type().IsRegular() {
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
