package ztunnel

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A State is the state of a server at one time.
type State struct {
	// Listening reports whether ztunnel can connect.
	Listening bool
	// Restored reports whether [Server.Restore] was called.
	Restored bool
	// Connections contains the connected ztunnels that have sent a hello, the oldest first.
	Connections []ConnectionState
	// Pods contains the pods sorted by UID.
	Pods []PodState
}

// A ConnectionState is a connected ztunnel.
type ConnectionState struct {
	ID      uint64    // differs for each connection of the server
	PID     int32     // of ztunnel; 0 if it is not visible in the PID namespace of the agent
	Version string    // in the hello: V1, or the number of an unknown version
	Since   time.Time // time of the hello
	// Ready reports whether ztunnel has acknowledged the snapshot.
	Ready bool
	// Unacknowledged is the last message, for example "add default/web", until ztunnel acknowledges
	// it.
	Unacknowledged string
	// SentAt is the time when the message in Unacknowledged was sent; zero if there is none.
	SentAt time.Time
	// Queued is the number of pods whose state must still be sent.
	Queued int
	// LastError is the last message that ztunnel acknowledged with an error, and the error.
	LastError string
}

// A PodState is a pod with the acknowledgements of ztunnels.
type PodState struct {
	UID   string
	Netns netns.ID // zero if unknown
	// AckedBy is the number of connections that have acknowledged the pod with this network
	// namespace. A keep does not count.
	AckedBy int
}

// IsConnected reports whether a ztunnel is connected and has sent its hello.
func (s *Server) IsConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections) > 0
}

// IsReplaced reports whether another agent, Sluice's or istio-cni's, listens at the socket now.
func (s *Server) IsReplaced() bool {
	l := s.listener.Load()
	return l != nil && l.Replaced()
}

// Acknowledged returns the number of pods that a ztunnel has acknowledged.
func (s State) Acknowledged() int {
	count := 0
	for _, p := range s.Pods {
		if p.AckedBy > 0 {
			count++
		}
	}
	return count
}

// State returns the current state.
func (s *Server) State() State {
	l := s.listener.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	state := State{Restored: s.isRestored(), Listening: l != nil && l.Listening()}
	connections := s.sortedConnections()
	for _, c := range connections {
		info := ConnectionState{
			ID: c.id, PID: c.pid, Version: c.version.String(), Since: c.since, Ready: c.synced,
			Queued: len(c.queue), LastError: c.lastErr,
		}
		if c.unacknowledged != nil {
			info.Unacknowledged, info.SentAt = c.unacknowledged.text, c.unacknowledged.since
		}
		state.Connections = append(state.Connections, info)
	}
	for _, served := range s.pods {
		p := PodState{UID: served.UID}
		if served.Netns != nil {
			p.Netns = served.Netns.ID()
		}
		for _, c := range connections {
			if c.reply(served) == acknowledged {
				p.AckedBy++
			}
		}
		state.Pods = append(state.Pods, p)
	}
	slices.SortFunc(state.Pods, func(a, b PodState) int { return strings.Compare(a.UID, b.UID) })
	return state
}
