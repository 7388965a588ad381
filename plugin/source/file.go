package source

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFileSize is the maximum size in bytes of a kubeconfig and of the files that it names.
// Kubernetes limits a Secret or ConfigMap, from which such files come, to 1 MiB.
const maxFileSize = 1 << 20

// readFile reads a kubeconfig, or a file that it names. Other files than regular ones are refused:
// reading a pipe may block, and reading a device may not end. With O_NONBLOCK, opening a pipe does
// not block either.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFileSize)
	}
	return data, err
}
