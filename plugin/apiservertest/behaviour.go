package apiservertest

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// A Behaviour is how the server treats one try. Those that are about connections treat a request
// alike, should it come on a connection that is open already.
type Behaviour struct {
	// connection takes over a connection before TLS; nil serves it.
	connection func(*Server, net.Conn)
	request    func(*Server, http.ResponseWriter, *http.Request)
}

// onRequest is a behaviour that is about requests.
func onRequest(f func(*Server, http.ResponseWriter, *http.Request)) Behaviour {
	return Behaviour{request: f}
}

// Normal answers as an API server does: with the object, 404, or 401 if the credentials are wrong.
func Normal() Behaviour {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, nil)
	})
}

// Slow answers well after a time.
func Slow(d time.Duration) Behaviour {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.answer(w, r, nil)
		case <-r.Context().Done():
		}
	})
}

// OtherUID answers with the object, as if it had another UID: the pod that had the name before, or
// has it now.
func OtherUID(uid string) Behaviour {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, func(object map[string]any) {
			metadata := object["metadata"].(map[string]any)
			metadata["uid"] = uid
			delete(metadata, "annotations")
		})
	})
}

// Reply answers with a status, a content type and a body of the caller's choice.
func Reply(code int, contentType, body string) Behaviour {
	return ReplyWith(code, http.Header{"Content-Type": {contentType}}, body)
}

// ReplyWith answers with a status, a header and a body of the caller's choice.
func ReplyWith(code int, header http.Header, body string) Behaviour {
	return onRequest(func(_ *Server, w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}

// Status answers with a code and a message in the form of an API server.
func Status(code int, message string) Behaviour {
	return Reply(code, "application/json", string(statusOf(code, message, "", "")))
}

// Unauthorized answers 401.
func Unauthorized() Behaviour { return Status(http.StatusUnauthorized, "Unauthorized") }

// Forbidden answers 403.
func Forbidden() Behaviour {
	return Status(http.StatusForbidden,
		`pods "web" is forbidden: User "system:serviceaccount:sluice-system:sluice-cni" `+
			`cannot get resource "pods" in API group "" in the namespace "default"`)
}

// InternalError answers 500.
func InternalError() Behaviour {
	return Status(http.StatusInternalServerError, "etcdserver: request timed out")
}

// TooManyRequests answers 429 with the header Retry-After, which has seconds or a date.
func TooManyRequests(retryAfter string) Behaviour {
	const code = http.StatusTooManyRequests
	header := http.Header{"Content-Type": {"application/json"}, "Retry-After": {retryAfter}}
	return ReplyWith(code, header,
		string(statusOf(code, "too many requests, please try again later", "", "")))
}

// NoHandshake accepts the connection and never says a word on it: a black hole.
func NoHandshake() Behaviour {
	b := NoReply()
	b.connection = func(s *Server, c net.Conn) { s.hold(c) }
	return b
}

// NoReply takes the request and never answers.
func NoReply() Behaviour {
	return onRequest(func(_ *Server, _ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a handler that returns has answered
	})
}

// Reset resets the connection before TLS.
func Reset() Behaviour {
	return Behaviour{
		connection: func(_ *Server, c net.Conn) { reset(c) },
		request:    func(_ *Server, w http.ResponseWriter, _ *http.Request) { resetRequest(w) },
	}
}

// HangUp takes the request and closes the connection without an answer, as a server that is shut
// down.
func HangUp() Behaviour {
	return onRequest(func(*Server, http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})
}

// ResetAnswer sends half of a good answer, and resets the connection.
func ResetAnswer() Behaviour {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		body := normalBody(s, r)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		resetRequest(w)
	})
}

// Truncated answers with the first half of the JSON of a good answer, as if that were all.
func Truncated() Behaviour {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		body := normalBody(s, r)
		write(w, http.StatusOK, []byte(body[:len(body)/2]))
	})
}

// Trickle starts a good answer, and then sends a blank from time to time without end.
func Trickle(every time.Duration) Behaviour {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		body := normalBody(s, r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body[:len(body)-1])
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			if _, err := io.WriteString(w, " "); err != nil ||
				http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-ticker.C:
			case <-r.Context().Done():
				// To return would end the answer in good order, which the client may see before its
				// own end.
				panic(http.ErrAbortHandler)
			}
		}
	})
}

// Huge answers with an object that has an annotation of so many bytes.
func Huge(bytes int) Behaviour {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, func(object map[string]any) {
			object["metadata"].(map[string]any)["annotations"] = map[string]any{
				"huge": strings.Repeat("x", bytes),
			}
		})
	})
}

// normalBody returns the body of a good answer.
func normalBody(s *Server, r *http.Request) string {
	recorder := httptest.NewRecorder()
	s.answer(recorder, r, nil)
	return recorder.Body.String()
}

// resetRequest resets the connection of a request.
func resetRequest(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		reset(c)
	}
}
