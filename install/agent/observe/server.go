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

// Limits for a client. Replies are small and come from memory.
const (
	headerTime  = 2 * time.Second
	requestTime = 5 * time.Second
	idleTime    = 30 * time.Second
	maxHeader   = 16 << 10
	// receiveBuffer limits the data that the kernel stores for a connection before it is read.
	receiveBuffer = 16 << 10
)

// Listen opens a port on all addresses.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // idle connections are closed earlier, and a flood costs fewer system calls
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
			})
			return errors.Join(err, failed)
		},
	}
	l, err := config.Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l, nil
}

// A Port is a handler with its limits.
type Port struct {
	Handler http.Handler
	// FromNode reports whether an address belongs to the node, from which the kubelet sends probes;
	// nil means that none does.
	FromNode func(netip.Addr) bool
	// Refused is called for each refused connection, and Report with their number at most once a
	// minute. Both may be nil.
	Refused func()
	Report  func(Refusals)
	// Log receives messages of net/http; nil means the standard logger.
	Log *log.Logger
}

// Serve serves the connections of a listener, within the limits of package observe, until ctx is
// done, and closes it. Running requests are completed within a second.
func (p Port) Serve(ctx context.Context, l net.Listener) error {
	guarded := &limiter{
		Listener: l, isNode: p.FromNode, refused: p.Refused, report: p.Report, now: time.Now,
	}
	if guarded.isNode == nil {
		guarded.isNode = func(netip.Addr) bool { return false }
	}
	if guarded.refused == nil {
		guarded.refused = func() {}
	}
	if guarded.report == nil {
		guarded.report = func(Refusals) {}
	}
	server := http.Server{
		Handler: p.Handler, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime,
		WriteTimeout: requestTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: p.Log,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(guarded) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close() // a request took too long
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}
