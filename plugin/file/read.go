package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNotRegular is wrapped by the error for a directory, a pipe or another special file in place of
// a regular file, and ErrTooLarge by the error for a file that is larger than the limit.
var (
	ErrNotRegular = errors.New("is not a regular file")
	ErrTooLarge   = errors.New("the file is too large")
)

// MaxRegular is the maximum size in bytes of a file that [ReadRegular] reads. Sluice's own files
// are smaller: the largest are the records of pods, whose annotations have at most 256 KiB.
const MaxRegular = 16 << 20

// ReadRegular reads a regular file of at most [MaxRegular] bytes. Unlike [os.ReadFile], it does not
// wait for a writer if the file is a pipe, and does not read a device. The error for a file that is
// not regular wraps [ErrNotRegular], and the error for a larger file [ErrTooLarge].
func ReadRegular(path string) ([]byte, error) { return ReadAtMost(path, MaxRegular) }

// ReadAtMost is like [ReadRegular], with another maximum size.
func ReadAtMost(path string, maxSize int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) { // a socket, or a device without a driver
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	tooLarge := fmt.Errorf("%s has more than %d bytes: %w", path, maxSize, ErrTooLarge)
	if info.Size() > maxSize {
		return nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1)) // the file may have grown
	if int64(len(data)) > maxSize {
		return nil, tooLarge
	}
	return data, err
}
