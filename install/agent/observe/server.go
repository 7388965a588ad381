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

// Limits of what a caller may cost: answers are small, and made from memory.
const (
	headerTime  = 2 * time.Second
	requestTime = 5 * time.Second
	idleTime    = 30 * time.Second
	maxHeader   = 16 << 10
	// receiveBuffer bounds what the kernel keeps of a connection before it is read.
	receiveBuffer = 16 << 10
)

// Listen opens a port on all addresses.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // no connection is idle for as long, and a flood costs fewer system calls
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

// A Port is what is served on a listener, and to whom.
type Port struct {
	Handler http.Handler
	// FromNode reports whether an address is the node's own, from where the kubelet probes; nil if
	// none is known to be.
	FromNode func(netip.Addr) bool
	// Refused is called with each connection that is refused, and Report with their number, once in
	// a minute at most. Both may be nil.
	Refused func()
	Report  func(Refusals)
	// Log takes what net/http has to say; nil discards nothing and writes to the standard logger.
	Log *log.Logger
}

// Serve answers those who connect to a listener, within the limits of package observe, until ctx
// ends, and closes it. Those who are being answered then are answered to the end, within a second.
func (p Port) Serve(ctx context.Context, l net.Listener) error {
	guarded := &limiter{Listener: l, node: p.FromNode, refused: p.Refused, report: p.Report, now: time.Now}
	if guarded.node == nil {
		guarded.node = func(netip.Addr) bool { return false }
	}
	if guarded.refused == nil {
		guarded.refused = func() {}
	}
	if guarded.report == nil {
		guarded.report = func(Refusals) {}
	}
	server := http.Server{
		Handler: p.Handler, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: requestTime, IdleTimeout: idleTime,
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
		_ = server.Close() // somebody was too slow
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}
