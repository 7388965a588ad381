package file

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
)

// ErrNotRegular is wrapped by the error for a directory, a pipe or another special file in place of
// a regular file.
var ErrNotRegular = errors.New("is not a regular file")

// ReadRegular reads a regular file. Unlike [os.ReadFile], it does not wait for a writer if the file
// is a pipe, and does not read a device. The error for a file that is not regular wraps
// [ErrNotRegular].
func ReadRegular(path string) ([]byte, error) { return ReadAtMost(path, math.MaxInt64-1) }

// ReadAtMost is like [ReadRegular]. A file of more than maxSize bytes is an error.
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
	tooLarge := fmt.Errorf("%s has more than %d bytes", path, maxSize)
	if info.Size() > maxSize {
		return nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1)) // the file may have grown
	if int64(len(data)) > maxSize {
		return nil, tooLarge
	}
	return data, err
}
