package observe

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits for a client. Replies are small and come from memory. Sizes are in bytes.
const (
	headerTimeout  = 2 * time.Second
	requestTimeout = 5 * time.Second
	maxHeader      = 16 << 10
	// receiveBuffer limits the data that the kernel stores for a connection before the agent reads
	// it.
	receiveBuffer = 16 << 10
)

// Listen opens a port on all addresses.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // idle connections are closed earlier, and a flood costs fewer system calls
		Control: func(_, _ string, raw syscall.RawConn) error {
			var setErr error
			err := raw.Control(func(fd uintptr) {
				setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
			})
			return errors.Join(err, setErr)
		},
	}
	l, err := config.Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l, nil
}

// ShutdownTime is the time that running requests have to complete after [Port.Serve] was canceled.
const ShutdownTime = time.Second

// A Port serves a handler on a port within limits. All fields except Log are required.
type Port struct {
	Handler http.Handler
	// FromNode reports whether an address belongs to the node, from which the kubelet sends probes.
	FromNode func(netip.Addr) bool
	// Refused is called for each refused connection.
	Refused func()
	// Report is called with the number of refused connections at most once a minute.
	Report func(Refusals)
	// Log receives messages of net/http; nil means the standard logger.
	Log *log.Logger
}

// Serve serves the connections of a listener, one request on each, until ctx is done, and then
// closes the listener and returns nil. Running requests have ShutdownTime to complete. Serve
// returns an error if the listener fails.
func (p Port) Serve(ctx context.Context, l net.Listener) error {
	guarded := &limiter{
		Listener: l, isNode: p.FromNode, refused: p.Refused, report: p.Report, now: time.Now,
	}
	server := http.Server{
		Handler: p.Handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: requestTimeout, MaxHeaderBytes: maxHeader, ErrorLog: p.Log,
	}
	server.SetKeepAlivesEnabled(false) // so that the limits of connections limit requests
	done := make(chan error, 1)
	go func() { done <- server.Serve(guarded) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownTime)
	defer cancel()
	if server.Shutdown(shutdownCtx) != nil {
		_ = server.Close() // a request took too long
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}
