package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A processNetns is a namespace of a process of a pod.
type processNetns struct {
	id      netns.ID
	path    string
	mounted bool // it is in the directory of network namespaces
	started uint64
	pid     int
}

// precedes reports whether c takes precedence over d; see the package documentation.
func (c processNetns) precedes(d processNetns) bool {
	switch {
	case c.mounted != d.mounted:
		return c.mounted
	case c.started != d.started:
		return c.started < d.started
	}
	return c.pid < d.pid
}

// searchProc searches the processes of the node for wanted pods.
func (s *search) searchProc() {
	pids, err := s.proc.processes()
	if err != nil {
		s.addError(errorIn(Proc, err))
		return
	}
	// Read on first use, because it is rarely needed.
	mounts := sync.OnceValue(func() map[netns.ID]string {
		paths, err := s.netns.mounted()
		if err != nil {
			s.addError(errorIn(Proc, err)) // not needed for the search
		}
		return paths
	})
	best, trouble := map[string]processNetns{}, map[string]error{}
	for _, pid := range pids {
		if err := s.ctx.Err(); err != nil {
			s.addError(errorIn(Proc, err))
			return
		}
		uid := s.proc.podOf(pid)
		if m := s.wanted[uid]; m == nil || m.Pod.Unproven {
			continue
		}
		c, err := s.netnsOf(pid, uid, mounts)
		if err == nil {
			err = s.checkOwner(c, uid)
		}
		if err != nil {
			trouble[uid] = fmt.Errorf("process %d: %w", pid, err)
		} else if old, ok := best[uid]; !ok || c.precedes(old) {
			best[uid] = c
		}
	}
	for uid, m := range s.wanted {
		if c, ok := best[uid]; ok {
			s.find(Sandbox{Pod: m.Pod, Path: c.path, ID: c.id, Source: Proc})
			continue
		}
		err := trouble[uid]
		if err == nil {
			err = errors.New("the pod has no process")
		}
		m.Err = errors.Join(m.Err, errorIn(Proc, err))
	}
}

// processNetns returns the namespace of a process of a pod, if it may be the pod's.
func (s *search) netnsOf(
	pid int, uid string, mounts func() map[netns.ID]string,
) (processNetns, error) {
	c := processNetns{path: s.proc.netns(pid), pid: pid}
	var err error
	if c.id, err = s.proc.namespace(pid); err != nil {
		return c, err
	}
	if c.started, err = s.proc.started(pid); err != nil {
		return c, err
	}
	switch {
	case s.isHostOrOwn(c.id):
		return c, errors.New("it is in the namespace of the node or of this process")
	case s.proc.podOf(pid) != uid:
		return c, errors.New("it has ended") // another process has its PID
	}
	if path, ok := mounts()[c.id]; ok {
		c.path, c.mounted = path, true
	}
	return c, nil
}

// checkOwner returns an error if the namespace is known to belong to another pod, because a
// privileged process may enter any namespace.
func (s *search) checkOwner(c processNetns, uid string) error {
	if c.mounted {
		onNode := filepath.Join(s.netns.onNode, filepath.Base(c.path))
		for _, all := range []candidates{s.records.claims, s.results.claims} {
			if last, ok := all.byPath[onNode]; ok && last.pod.UID != uid {
				return fmt.Errorf("it is in the namespace of pod %s", last.pod)
			}
		}
	}
	for _, k := range s.Finder.found {
		if k.ID == c.id && k.Pod.UID != uid && k.exists() {
			return fmt.Errorf("it is in the namespace of pod %s", k.Pod)
		}
	}
	return nil
}
