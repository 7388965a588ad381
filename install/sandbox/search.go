package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A search is a call of Find.
type search struct {
	*Finder
	ctx    context.Context
	found  map[string]Sandbox
	wanted map[string]*Missing // pods that are not found yet, by UID
	// own and host are the namespaces of the finder and the node, which are not sandboxes; host is
	// empty if /proc is not available.
	own, host netns.ID
	// trouble contains the errors of sources as a whole.
	trouble error
}

// learn reads new records.
func (s *search) learn() { s.note(s.records.refresh()) }

func (s *search) note(err error) { s.trouble = errors.Join(s.trouble, err) }

// run searches the sources for the wanted pods.
func (s *search) run() {
	if len(s.wanted) == 0 {
		return
	}
	var err error
	if s.proc != "" {
		if s.host, err = s.proc.namespace(firstProcess); err != nil {
			s.note(errorIn(Proc, err))
		}
	}
	s.ask(Record, &s.records.claims)
	if len(s.wanted) == 0 {
		return
	}
	s.note(s.results.refresh(s.ctx))
	s.ask(Runtime, &s.results.claims)
	// If the node's network namespace is unknown, it could be mistaken for that of a pod.
	if len(s.wanted) == 0 || s.proc == "" || err != nil {
		return
	}
	s.searchProc()
}

// ask searches the claims of a source.
func (s *search) ask(source Source, c *claims) {
	for uid, m := range s.wanted {
		for _, a := range c.byUID[uid] {
			found, err := s.verify(m.Pod, a, c)
			if err == nil {
				found.Source = source
				s.find(found)
				break
			}
			m.Err = errors.Join(m.Err,
				errorIn(source, fmt.Errorf("sandbox %s: %w", a.containerID, err)))
		}
	}
}

// find adds a found sandbox.
func (s *search) find(f Sandbox) {
	f.Created = s.created(f.Path)
	delete(s.wanted, f.Pod.UID)
	s.found[f.Pod.UID] = f
	s.remember(f)
}

// verify returns the sandbox of a claim if it exists.
func (s *search) verify(p Pod, a claim, all *claims) (Sandbox, error) {
	if owner := all.byPath[a.path].pod; owner != p {
		return Sandbox{}, fmt.Errorf("%s is that of pod %s with UID %s", a.path, owner, owner.UID)
	}
	path, err := s.place(a)
	if err != nil {
		return Sandbox{}, err
	}
	ns, err := netns.Open(path)
	if err != nil {
		return Sandbox{}, err
	}
	defer ns.Close() //nolint:errcheck // nothing was done with it
	if s.isNobodys(ns.ID()) {
		return Sandbox{}, fmt.Errorf("%s is the namespace of the node or of this process", path)
	}
	return Sandbox{Pod: p, Path: path, ID: ns.ID(), ContainerID: a.containerID}, nil
}

// isNobodys reports whether a namespace cannot be a pod's sandbox.
func (s *search) isNobodys(id netns.ID) bool { return id == s.own || id == s.host }

// place returns the finder's path for the path of a claim.
func (s *search) place(a claim) (string, error) {
	if path, ok := s.netns.place(a.path); ok {
		return path, nil
	}
	if pid, ok := processOf(a.path); ok && s.proc != "" {
		if uid := s.proc.podOf(pid); uid != a.pod.UID {
			return "", fmt.Errorf("%s is no process of the pod", a.path)
		}
		return s.proc.netns(pid), nil
	}
	return "", fmt.Errorf("%s is at no place that is looked at", a.path)
}
