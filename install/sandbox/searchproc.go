package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
)

// A processNetns is the network namespace of a process of a pod.
type processNetns struct {
	id        netns.ID
	path      string
	mounted   bool   // the path is in the directory of network namespaces
	startTime uint64 // of the process
	pid       int
}

// precedes reports whether n takes precedence over other as the pod's sandbox; see the package
// documentation.
func (n processNetns) precedes(other processNetns) bool {
	switch {
	case n.mounted != other.mounted:
		return n.mounted
	case n.startTime != other.startTime:
		return n.startTime < other.startTime
	}
	return n.pid < other.pid
}

// searchProc searches the processes of the node for wanted pods.
func (s *search) searchProc() {
	pids, err := s.proc.processes()
	if err != nil {
		s.addError(errorIn(Proc, err))
		return
	}
	// The directory is read on first use, because it is rarely needed.
	mounts := sync.OnceValue(func() map[netns.ID]string {
		paths, err := s.netns.pathsByID()
		if err != nil {
			s.addError(errorIn(Proc, err)) // the search continues without the directory
		}
		return paths
	})
	wanted := make(map[string]bool, len(s.wanted)) // by UID
	for p := range s.wanted {
		wanted[p.UID] = true
	}
	best, errs := map[string]processNetns{}, map[string]error{} // by UID
	var unknown error                                           // of the last process whose pod is unknown
	for _, pid := range pids {
		if err := s.ctx.Err(); err != nil {
			s.addError(errorIn(Proc, err))
			return
		}
		uid, err := s.proc.podOf(pid)
		if err != nil {
			unknown = err
		}
		if !wanted[uid] {
			continue
		}
		n, err := s.netnsOf(pid, uid, mounts)
		if err == nil {
			err = s.checkOwner(n, uid)
		}
		if err != nil {
			errs[uid] = fmt.Errorf("process %d: %w", pid, err)
		} else if other, ok := best[uid]; !ok || n.precedes(other) {
			best[uid] = n
		}
	}
	for p, m := range s.wanted {
		n, ok := best[p.UID]
		err := errs[p.UID]
		switch {
		case ok:
			err = checkAddress(n, p)
		case err == nil && unknown != nil:
			err = fmt.Errorf("no process of the pod was found, and the pod of a process is unknown: %w", unknown)
		case err == nil:
			err = errors.New("the pod has no process")
		}
		if err != nil {
			m.Err = errors.Join(m.Err, errorIn(Proc, err))
			continue
		}
		s.addFound(Sandbox{Pod: p, Path: n.path, ID: n.id, Source: Proc})
	}
}

// checkAddress returns an error if the UID of the pod is not proven, and the network namespace does
// not have the pod's address.
func checkAddress(n processNetns, p Pod) error {
	switch {
	case !p.Unproven:
		return nil
	case !p.Address.IsValid():
		return errors.New("the UID may belong to another pod, and the pod's status has no address")
	}
	ns, err := netns.Open(n.path)
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // only read from
	addresses, err := route.Addresses(ns)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Unmap() == p.Address }) {
		return fmt.Errorf("the processes' network namespace does not have the address in the pod's status (%s), "+
			"and the UID may belong to another pod", p.Address)
	}
	return nil
}

// netnsOf returns the network namespace of a process of a pod, if it may be the pod's sandbox.
func (s *search) netnsOf(
	pid int, uid string, mounts func() map[netns.ID]string,
) (processNetns, error) {
	n := processNetns{path: s.proc.netns(pid), pid: pid}
	var err error
	if n.id, err = s.proc.namespace(pid); err != nil {
		return n, err
	}
	if n.startTime, err = s.proc.startTime(pid); err != nil {
		return n, err
	}
	current, err := s.proc.podOf(pid)
	switch {
	case s.isHostOrOwn(n.id):
		return n, errors.New("it is in the namespace of the node or of this process")
	case err != nil:
		return n, err
	case current != uid:
		return n, errors.New("it has ended") // another process may have its PID
	}
	if path, ok := mounts()[n.id]; ok {
		n.path, n.mounted = path, true
	}
	return n, nil
}

// checkOwner returns an error if the network namespace is known to belong to another pod: a
// privileged process may enter any namespace.
func (s *search) checkOwner(n processNetns, uid string) error {
	if n.mounted {
		onNode := filepath.Join(s.netns.onNode, filepath.Base(n.path))
		for _, known := range []candidates{s.records.candidates, s.results.candidates} {
			if owner, ok := known.byPath[onNode]; ok && owner.pod.UID != uid {
				return fmt.Errorf("it is in the namespace of pod %s", owner.pod)
			}
		}
	}
	for _, known := range s.cached {
		if known.ID == n.id && known.Pod.UID != uid && known.exists() {
			return fmt.Errorf("it is in the namespace of pod %s", known.Pod)
		}
	}
	return nil
}
