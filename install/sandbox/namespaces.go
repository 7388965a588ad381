package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// Namespaces returns the paths of the network namespaces of all processes of the node, one path for
// each namespace, except the node's own and this process's. It needs no records, results or pods.
// The error may concern only some processes; the paths of the others are returned too.
func Namespaces(nodeProc string) ([]string, error) {
	proc := procDir(nodeProc)
	host, err := proc.namespace(firstProcess)
	if err != nil { // the node's network namespace could be mistaken for a sandbox
		return nil, errorIn(Proc, err)
	}
	pids, err := proc.processes()
	if err != nil {
		return nil, errorIn(Proc, err)
	}
	seen := map[netns.ID]bool{host: true, (*netns.NS)(nil).ID(): true}
	var paths []string
	var firstErr error
	failed := 0
	for _, pid := range pids {
		id, err := proc.namespace(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH): // the process has ended
		case err != nil:
			if failed++; firstErr == nil {
				firstErr = err
			}
		case !seen[id]:
			seen[id] = true
			paths = append(paths, proc.netns(pid))
		}
	}
	if failed > 0 {
		return paths, errorIn(Proc, fmt.Errorf("%d processes: the first error is: %w", failed, firstErr))
	}
	return paths, nil
}
