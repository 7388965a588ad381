package source

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFile is the maximum size in bytes of a kubeconfig and of the files that it names. Kubernetes
// limits a Secret or ConfigMap, from which such files come, to 1 MiB.
const maxFile = 1 << 20

// readFile reads a regular file of the configuration. Other files are refused: reading a pipe may
// block, and reading a device may not end.
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
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return data, err
}
