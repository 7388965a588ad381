package observe

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/plugin/log/options"
)

// Health contains the state that the health port serves. Its functions must be safe for concurrent
// use.
type Health struct {
	// Ready returns the current readiness.
	Ready func() Readiness
	// Stuck returns an error if the agent should be restarted, and nil otherwise.
	Stuck func() error
	// Level is the log level that /log-level reads and sets.
	Level zap.AtomicLevel
}

// Handler serves the following requests. The port is open to the cluster; therefore the log level
// can only be set from the agent's own network namespace, from which kubectl port-forward connects.
//
//	GET /readyz     200 or 503, with the reasons as text, or as JSON (?format=json or Accept)
//	GET /healthz    200 or 503
//	GET /log-level  the minimum log level
//	PUT /log-level  sets the minimum log level: debug, info, warn, error, fatal or none
func (h Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /log-level", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, h.level())
	})
	mux.HandleFunc("PUT /log-level", h.setLevel)
	return mux
}

func (h Health) readyz(w http.ResponseWriter, r *http.Request) {
	readiness := h.Ready()
	code := http.StatusOK
	if !readiness.Ready {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Query().Get("format") == "json" ||
		strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(readiness) // the client may have disconnected
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprint(w, readiness)
}

func (h Health) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := h.Stuck(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (h Health) level() string {
	if options.Level(h.Level.Level()) == options.None {
		return "none"
	}
	return h.Level.Level().String()
}

func (h Health) setLevel(w http.ResponseWriter, r *http.Request) {
	if !isLocal(r.RemoteAddr) {
		http.Error(w, "the level can be set from the agent's own network namespace only: "+
			"use kubectl port-forward", http.StatusForbidden)
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, 64))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	level, err := options.ParseLevel(strings.TrimSpace(string(text)))
	if err != nil {
		http.Error(w,
			fmt.Sprintf("%q: want %s", strings.TrimSpace(string(text)), options.LevelWant),
			http.StatusBadRequest)
		return
	}
	h.Level.SetLevel(zapcore.Level(level))
	fmt.Fprintln(w, h.level())
}

// isLocal reports whether a client is in the agent's network namespace.
func isLocal(peer string) bool {
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
