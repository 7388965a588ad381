package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// An Outcome is the outcome of a query. The values are also values of the label result of the
// metric sluice_serve_requests_total.
type Outcome string

// The outcomes.
const (
	Success  Outcome = "success"   // answered without fetching an object from the API server
	Fetched  Outcome = "fetched"   // answered with an object from the API server
	NotFound Outcome = "not_found" // there is no such object
	Refused  Outcome = "refused"   // the API server denied access
	Failed   Outcome = "error"     // any other error
)

// serve reads one request, and answers it unless it is a notification or cannot be parsed.
func (s *Server) serve(conn *net.UnixConn) error {
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	receiver := agent.NewReceiver(conn)
	defer receiver.Close()
	text, err := agent.ReadFrame(receiver, agent.MaxRequest)
	if errors.Is(err, io.EOF) {
		return nil // agents of earlier versions connect to test whether this agent listens
	}
	if err != nil {
		return fmt.Errorf("read a request: %w", err)
	}
	start := time.Now()
	var r agent.Request
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("decode a request: %w", err)
	}
	if err := r.CheckSupported(); err != nil {
		return errors.Join(err, s.answer(conn, nil, err))
	}
	if !r.Verb.IsQuery() {
		return s.notify(&r)
	}
	body, outcome, err := s.query(&r, receiver)
	s.options.Answered(outcome, time.Since(start))
	return s.answer(conn, body, err)
}

// notify handles requests that are not answered: log lines, reports of ADD, and pods.
func (s *Server) notify(r *agent.Request) error {
	switch r.Verb {
	case agent.NotifyPod:
		if err := s.options.PodFetched(r.Pod); err != nil {
			return fmt.Errorf("fetched: %w", err)
		}
	case agent.NotifyLog:
		if !json.Valid([]byte(r.Line)) || !strings.HasPrefix(r.Line, "{") ||
			strings.ContainsAny(r.Line, "\r\n") {
			return errors.New("log: the line is not a JSON object on a single line")
		}
		s.options.Log([]byte(r.Line))
	default: // agent.NotifyAdd
		if r.Add == nil {
			return errors.New("add: the request contains no report")
		}
		if err := r.Add.Validate(); err != nil {
			return fmt.Errorf("add: %w", err)
		}
		s.options.Added(*r.Add)
	}
	return nil
}

// query returns the body of the answer to a query, and the outcome of the query. receiver has
// received the query.
func (s *Server) query(r *agent.Request, receiver *agent.Receiver) ([]byte, Outcome, error) {
	timeout := queryTimeout
	if r.Verb == agent.AskLocate {
		timeout = locateTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var body []byte
	var fetched bool
	var err error
	switch r.Verb {
	case agent.GetPod:
		body, fetched, err = s.options.Objects.Pod(ctx, source.Ref{
			Namespace: r.Namespace, Name: r.Name, UID: r.UID,
		})
	case agent.GetNamespace:
		body, fetched, err = s.options.Objects.Namespace(ctx, r.Namespace)
	case agent.GetPolicy:
		if body = s.options.Policy(); len(body) == 0 {
			body = []byte("{}")
		}
	case agent.GetStatus:
		body, err = json.Marshal(s.options.Status())
	case agent.AskLocate:
		body, err = s.locate(ctx, r)
	case agent.GetHost:
		body, err = marshal(s.options.Host())
	case agent.AskEnroll:
		body, err = s.enroll(r, receiver.TakeDescriptors())
	default: // agent.GetReady
		err = s.options.Objects.Ready(ctx)
	}
	if err == nil && len(body) > agent.MaxBody {
		err = fmt.Errorf("the answer has more than %d MiB", agent.MaxBody>>20)
	}
	return body, outcomeOf(fetched, err), err
}

// locate returns the network namespace and the redirection of a pod.
func (s *Server) locate(ctx context.Context, r *agent.Request) ([]byte, error) {
	found, err := s.options.Locate(ctx, r.Namespace, r.Name)
	if err == nil {
		err = found.Validate()
	}
	return marshal(found, err)
}

// enroll enrolls a pod in ambient mode. It closes the descriptors.
func (s *Server) enroll(r *agent.Request, fds []int) ([]byte, error) {
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	if len(fds) != 1 {
		return nil, source.WithKind(source.Unavailable,
			fmt.Errorf("the request has %d descriptors; it must have one, of a network namespace",
				len(fds)))
	}
	select {
	case s.enrollments <- struct{}{}:
		defer func() { <-s.enrollments }()
	default:
		return nil, source.WithKind(source.Unavailable,
			fmt.Errorf("%d pods are being enrolled already", maxEnrollments))
	}
	ns, err := netns.FromHandle(vishnetns.NsHandle(fds[0]))
	if err != nil {
		return nil, source.WithKind(source.Unavailable, err)
	}
	defer func() { _ = ns.Close() }()
	ref := source.Ref{Namespace: r.Namespace, Name: r.Name, UID: r.UID}
	return marshal(s.options.Enroll(s.ctx, ref, ns, r.Addresses))
}

// marshal returns the JSON of a value, or err if it is not nil.
func marshal(value any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func outcomeOf(fetched bool, err error) Outcome {
	switch {
	case err == nil && fetched:
		return Fetched
	case err == nil:
		return Success
	case source.IsNotFound(err), source.IsReplaced(err):
		return NotFound
	case source.IsRefused(err):
		return Refused
	}
	return Failed
}

// answer sends an answer with one write: the body if queryErr is nil, and otherwise the error.
func (s *Server) answer(conn net.Conn, body []byte, queryErr error) error {
	head := agent.Answer{Version: agent.Version}
	if queryErr != nil {
		head = agent.ErrorAnswer(string(source.KindOf(queryErr)), queryErr)
	}
	message, err := agent.AppendJSON(make([]byte, 0, 64+len(body)), head, agent.MaxAnswer)
	if err != nil {
		return err
	}
	if queryErr == nil {
		message = agent.AppendFrame(message, body)
	}
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	if _, err := conn.Write(message); err != nil {
		return fmt.Errorf("send an answer: %w", err)
	}
	return nil
}
