// Package server is the sample application: HTTP and UDP servers. They respond with the addresses
// of the connection and, over HTTP, the proxies that forwarded the request.
package server

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// HopHeader is the header with a [path.Hop] as JSON that each proxy adds to a request. The header
// of the last proxy comes first.
const HopHeader = "X-Mesh-Hop"

// lastPrefix is the URL path below which the server returns earlier answers again.
const lastPrefix = "/last"

// Handler responds to each request with a [path.Answer]. Its field Server is pod, and its field At
// is at. For a URL path /last/P it returns the answer to the last request for /P, or 404 if there
// was none.
func Handler(pod, at string) http.Handler {
	h := &handler{pod: pod, at: at, last: map[string]path.Answer{}}
	return http.HandlerFunc(h.serve)
}

// A handler remembers the last answer for each URL path.
type handler struct {
	pod, at string

	mu   sync.Mutex
	last map[string]path.Answer
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	answer, found := h.answer(r)
	if !found {
		http.Error(w, "no earlier request", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// answer returns the answer to a request, or false if the request asks for an earlier answer that
// does not exist.
func (h *handler) answer(r *http.Request) (path.Answer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if earlierPath, isEarlier := strings.CutPrefix(r.URL.Path, lastPrefix); isEarlier {
		answer, found := h.last[earlierPath]
		return answer, found
	}
	answer := path.Answer{Server: h.pod, At: h.at, Peer: path.ParseAddrPort(r.RemoteAddr)}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		answer.Local = path.AddrPort(local)
	}
	for _, text := range slices.Backward(r.Header.Values(HopHeader)) {
		var hop path.Hop
		if err := json.Unmarshal([]byte(text), &hop); err != nil {
			hop.Proxy = "unreadable: " + text
		}
		answer.Via = append(answer.Via, hop)
	}
	h.last[r.URL.Path] = answer
	return answer, true
}

// ServeUDP listens on an address with port, and responds to each UDP datagram with a [path.Answer]
// until ctx is done or the socket fails.
func ServeUDP(ctx context.Context, addr, pod string) error {
	var config net.ListenConfig
	conn, err := config.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	buffer := make([]byte, 512)
	for {
		_, peer, err := conn.ReadFrom(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := json.Marshal(path.Answer{
			Server: pod, At: "app", Local: path.AddrPort(conn.LocalAddr()),
			Peer: path.AddrPort(peer),
		})
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(text, peer); err != nil {
			return err
		}
	}
}
