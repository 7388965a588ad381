package source

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFile is how many bytes a kubeconfig, or a file that it names, may have. Kubernetes' own limit for the Secret or ConfigMap that such
// files come from is 1 MiB.
const maxFile = 1 << 20

// readFile reads a file of the configuration. What is no regular file is refused: nobody may ever write into a pipe, and a device may
// never end.
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
