package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrChanged is wrapped by the error of a change that was not made, or did not last, because
// another process has written the file. The content of the other process remains.
var ErrChanged = errors.New("another process wrote it meanwhile")

// An Error names the file that could not be changed, and its state.
type Error struct {
	Op    string // the attempted operation: "write", "copy" or "remove"
	Path  string // the path that the caller passed
	State State  // state of the file after the failure
	Err   error
}

// State is the state of a file after a failed change.
type State string

// The states.
const (
	Untouched State = "the old file is untouched"
	Missing   State = "there is no such file"
	Replaced  State = "the new file is in place, but a loss of power may undo it"
	Removed   State = "the file is removed, but a loss of power may undo it"
	Unknown   State = "the current content could not be determined"
)

func (e *Error) Error() string {
	cause := e.cause()
	if errors.Is(e.Err, ErrChanged) { // the file has the state that the other process gave it
		return fmt.Sprintf("%s %s: %v", e.Op, e.Path, cause)
	}
	return fmt.Sprintf("%s %s: %v (%s)", e.Op, e.Path, cause, e.State)
}

// cause returns the error without the path, which the message already contains, and without the
// random names of temporary files, so that repeated failures have equal messages.
func (e *Error) cause() error {
	var path *fs.PathError
	if errors.As(e.Err, &path) && (path.Path == e.Path || isTemporary(filepath.Base(path.Path))) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(e.Err, &link) && (isTemporary(filepath.Base(link.Old)) ||
		isTemporary(filepath.Base(link.New))) {
		return link.Err
	}
	return e.Err
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsFull reports whether the error means that the disk or the quota is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsReadOnly reports whether the error means that the file system is mounted read-only.
func IsReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// unchangedError returns the error for a failure that did not change the file.
func unchangedError(op, path string, err error) error {
	state := Unknown
	switch _, statErr := os.Stat(path); {
	case statErr == nil:
		state = Untouched
	case errors.Is(statErr, fs.ErrNotExist):
		state = Missing
	}
	return &Error{Op: op, Path: path, State: state, Err: err}
}
