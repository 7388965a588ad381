package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A search is the state of one call of [Finder.Find].
type search struct {
	*Finder
	ctx    context.Context
	found  map[Pod]Sandbox
	wanted map[Pod]*Missing // pods that have not been found yet
	// own and host are the network namespaces of this process and of the node, which are not
	// sandboxes. host is zero if the node's namespace is unknown.
	own, host netns.ID
	// err contains the errors that concern a whole source.
	err error
}

func (s *search) addError(err error) { s.err = errors.Join(s.err, err) }

// run searches the sources for the wanted pods.
func (s *search) run() {
	if len(s.wanted) == 0 {
		return
	}
	var err error
	if s.proc != "" {
		if s.host, err = s.proc.namespace(firstProcess); err != nil {
			s.addError(errorIn(Proc, err))
		}
	}
	s.searchCandidates(Record, &s.records.candidates)
	if len(s.wanted) == 0 {
		return
	}
	s.addError(s.results.refresh(s.ctx))
	s.searchCandidates(Runtime, &s.results.candidates)
	// If the node's network namespace is unknown, it could be mistaken for a sandbox.
	if len(s.wanted) == 0 || s.proc == "" || err != nil {
		return
	}
	s.searchProc()
}

// searchCandidates searches the candidates of a source.
func (s *search) searchCandidates(source Source, all *candidates) {
	for p, m := range s.wanted {
		hasEnded := source == Record && len(all.byUID[p.UID]) > 0
		for _, c := range all.byUID[p.UID] {
			found, err := s.verify(p, c, all)
			if err == nil {
				found.Source = source
				s.addFound(found)
				break
			}
			hasEnded = hasEnded &&
				(errors.Is(err, fs.ErrNotExist) || errors.As(err, new(otherPodError)))
			m.Err = errors.Join(m.Err,
				errorIn(source, fmt.Errorf("sandbox %s: %w", c.containerID, err)))
		}
		m.Ended = m.Ended || hasEnded
	}
}

// addFound adds a found sandbox to the result and to the cache.
func (s *search) addFound(f Sandbox) {
	f.Created = s.creationTime(f.Path)
	delete(s.wanted, f.Pod)
	s.found[f.Pod] = f
	s.cached[f.Pod] = cachedSandbox{f, s.records.candidates.newest(f.Pod.UID)}
}

// An otherPodError means that the path of a candidate belongs to another pod now, or to none.
type otherPodError struct{ error }

// verify returns the sandbox of a candidate if it exists, does not belong to another pod, and is
// not the network namespace of the node or of this process.
func (s *search) verify(p Pod, c candidate, all *candidates) (Sandbox, error) {
	identity := p
	identity.Unproven, identity.Address = false, netip.Addr{} // candidates never set these fields
	if owner := all.byPath[c.path].pod; owner != identity {
		return Sandbox{}, otherPodError{
			fmt.Errorf("%s belongs to pod %s with UID %s", c.path, owner, owner.UID),
		}
	}
	path, err := s.localPath(c)
	if err != nil {
		return Sandbox{}, err
	}
	ns, err := netns.Open(path)
	if err != nil {
		return Sandbox{}, err
	}
	defer ns.Close() //nolint:errcheck // only its identity is read
	if s.isHostOrOwn(ns.ID()) {
		return Sandbox{}, fmt.Errorf("%s is the namespace of the node or of this process", path)
	}
	return Sandbox{Pod: p, Path: path, ID: ns.ID(), ContainerID: c.containerID}, nil
}

// isHostOrOwn reports whether a network namespace is the node's or this process's.
func (s *search) isHostOrOwn(id netns.ID) bool { return id == s.own || id == s.host }

// localPath returns the path at which this process finds a candidate, or an error that says why the
// candidate's path on the node cannot be used.
func (s *search) localPath(c candidate) (string, error) {
	if path, ok := s.netns.localPath(c.path); ok {
		return path, nil
	}
	pid, isProc := processOf(c.path)
	switch {
	case !isProc:
		return "", fmt.Errorf("%s is neither in the directory of network namespaces "+
			"nor the file /proc/PID/ns/net of a process", c.path)
	case s.proc == "":
		return "", fmt.Errorf("%s is in /proc, which is not searched", c.path)
	}
	uid, err := s.proc.podOf(pid)
	switch {
	case err != nil:
		return "", fmt.Errorf("it is unknown whether %s belongs to a process of the pod: %w", c.path, err)
	case uid != c.pod.UID:
		return "", otherPodError{
			fmt.Errorf("%s does not belong to a process of the pod", c.path),
		}
	}
	return s.proc.netns(pid), nil
}
