package apiservertest

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"time"
)

// events is the state of the Event API. The server's mutex guards it.
type events struct {
	list    []Event
	updates int // number of successful patches
	code    int // status code with which patches are refused; 0 for none
}

// An Event is an event that a client created, with all later patches applied.
type Event struct {
	Type, Reason, Message string
	Count                 int
	FirstTimestamp        time.Time
	LastTimestamp         time.Time
	Metadata              struct{ Name string }
	InvolvedObject        struct{ Kind, Name string }
}

// Events returns the events in the order in which they were last written.
func (s *Server) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.events.list...)
}

// EventUpdates returns the number of successful patches of events.
func (s *Server) EventUpdates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events.updates
}

// RefuseEventUpdates makes the server refuse patches of events with a status code. A code of 0
// accepts them again.
func (s *Server) RefuseEventUpdates(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.code = code
}

// createEvent stores the event in the body of a request.
func (s *Server) createEvent(w http.ResponseWriter, r *http.Request) {
	var e Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	s.events.list = append(s.events.list, e)
	s.mu.Unlock()
	write(w, http.StatusCreated, []byte("{}"))
}

// patchEvent applies a patch to an event, and moves the event to the end of the list.
func (s *Server) patchEvent(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events.list
	name := path.Base(r.URL.Path)
	i := slices.IndexFunc(events, func(e Event) bool { return e.Metadata.Name == name })
	switch {
	case s.events.code == http.StatusNotFound, s.events.code == 0 && i < 0:
		notFound(w, "events", name)
	case s.events.code != 0:
		refuse(w, s.events.code, "patches of events are rejected")
	case json.NewDecoder(r.Body).Decode(&events[i]) != nil:
		refuse(w, http.StatusBadRequest, "invalid patch")
	default:
		s.events.updates++
		e := events[i]
		s.events.list = append(slices.Delete(events, i, i+1), e)
		write(w, http.StatusOK, []byte("{}"))
	}
}
