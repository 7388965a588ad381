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

// A Behavior is the reaction of the server to one new connection or one request. A behavior for
// connections has both functions, because a client may send its request on a connection that is
// open already.
type Behavior struct {
	// connection takes over a connection before TLS. If it is nil, the connection is served.
	connection func(*Server, net.Conn)
	// request handles a request.
	request func(*Server, http.ResponseWriter, *http.Request)
}

// onRequest returns a behavior for requests.
func onRequest(f func(*Server, http.ResponseWriter, *http.Request)) Behavior {
	return Behavior{request: f}
}

// Normal replies as an API server does: with the object, 404, or 401 if the credentials are wrong.
func Normal() Behavior {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, nil)
	})
}

// SilentWatches accepts watches and sends no events, and replies normally to other requests.
func SilentWatches() Behavior {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			s.answer(w, r, nil)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
}

// Slow replies normally after a delay.
func Slow(d time.Duration) Behavior {
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

// OtherUID replies with the object under another UID and without annotations, as if another pod had
// the name.
func OtherUID(uid string) Behavior {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, func(object map[string]any) {
			metadata := object["metadata"].(map[string]any)
			metadata["uid"] = uid
			delete(metadata, "annotations")
		})
	})
}

// Reply replies with a status code, a content type and a body of the caller's choice.
func Reply(code int, contentType, body string) Behavior {
	return ReplyWith(code, http.Header{"Content-Type": {contentType}}, body)
}

// ReplyWith replies with a status code, a header and a body of the caller's choice.
func ReplyWith(code int, header http.Header, body string) Behavior {
	return onRequest(func(_ *Server, w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}

// Status replies with a code and a message in a metav1.Status, as an API server does.
func Status(code int, message string) Behavior {
	return Reply(code, "application/json", string(newStatus(code, message, "", "")))
}

// Unauthorized replies 401.
func Unauthorized() Behavior { return Status(http.StatusUnauthorized, "Unauthorized") }

// Forbidden replies 403.
func Forbidden() Behavior {
	return Status(http.StatusForbidden,
		`pods "web" is forbidden: User "system:serviceaccount:sluice-system:sluice-cni" `+
			`cannot get resource "pods" in API group "" in the namespace "default"`)
}

// InternalError replies 500.
func InternalError() Behavior {
	return Status(http.StatusInternalServerError, "etcdserver: request timed out")
}

// TooManyRequests replies 429. retryAfter is the header Retry-After: a number of seconds or a date.
func TooManyRequests(retryAfter string) Behavior {
	const code = http.StatusTooManyRequests
	header := http.Header{"Content-Type": {"application/json"}, "Retry-After": {retryAfter}}
	return ReplyWith(code, header,
		string(newStatus(code, "too many requests, please try again later", "", "")))
}

// NoHandshake accepts the connection and sends nothing.
func NoHandshake() Behavior {
	b := NoReply()
	b.connection = func(s *Server, c net.Conn) { s.hold(c) }
	return b
}

// NoReply reads the request and never replies.
func NoReply() Behavior {
	return onRequest(func(_ *Server, _ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a handler that returns would reply
	})
}

// Reset resets the connection before TLS.
func Reset() Behavior {
	return Behavior{
		connection: func(_ *Server, c net.Conn) { reset(c) },
		request:    func(_ *Server, w http.ResponseWriter, _ *http.Request) { resetRequest(w) },
	}
}

// HangUp reads the request and closes the connection without a reply, like a server that shuts
// down.
func HangUp() Behavior {
	return onRequest(func(*Server, http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})
}

// ResetReply sends half of a normal reply, and resets the connection.
func ResetReply() Behavior {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		body := normalBody(s, r)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		resetRequest(w)
	})
}

// Truncated replies with the first half of the JSON of a normal reply. The HTTP message is
// complete.
func Truncated() Behavior {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		body := normalBody(s, r)
		write(w, http.StatusOK, []byte(body[:len(body)/2]))
	})
}

// Trickle sends a normal reply except its last byte, and then spaces at the given interval until
// the client gives up.
func Trickle(every time.Duration) Behavior {
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
				// Returning would complete the reply, which the client might receive before its
				// timeout.
				panic(http.ErrAbortHandler)
			}
		}
	})
}

// Huge replies with an object that has an annotation of the given length in bytes.
func Huge(bytes int) Behavior {
	return onRequest(func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, func(object map[string]any) {
			object["metadata"].(map[string]any)["annotations"] = map[string]any{
				"huge": strings.Repeat("x", bytes),
			}
		})
	})
}

// normalBody returns the body of a normal reply.
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
