package path

import (
	"errors"
	"fmt"
	"net/netip"
)

// passthrough4 and passthrough6 are the source addresses that an application sees of connections of
// a proxy without TPROXY.
var (
	passthrough4 = netip.MustParseAddr("127.0.0.6")
	passthrough6 = netip.MustParseAddr("::6")
)

// An Expected is the expected path of a request. The zero value is the path from a pod outside the
// mesh to another one: without proxies.
type Expected struct {
	// Server is the pod that must answer; empty means any. At is the part of it that must answer;
	// empty means the application ("app").
	Server, At string
	// Outbound and Inbound report whether the caller's proxy, and the server's proxy, must forward
	// it.
	Outbound, Inbound bool
	// Transparent reports that the server's proxy keeps the caller's address, as with TPROXY.
	Transparent bool
	// Masqueraded reports that the caller's address is translated between the two pods. Then the
	// caller's address is not compared.
	Masqueraded bool
}

// Captured returns the path from one mesh pod to another.
func Captured(server string) Expected { return Expected{Server: server, Outbound: true, Inbound: true} }

// Check returns nil if the request was answered and took exactly this path. The error describes the
// first deviation.
func (r Report) Check(w Expected) error {
	if r.Answer == nil {
		return fmt.Errorf("%s was not answered: %s", r.Caller, r.Error)
	}
	if err := w.check(r); err != nil {
		return fmt.Errorf("%s, which asked %s from %s: %w; what was answered: %+v", r.Caller,
			r.Remote, r.Local, err, *r.Answer)
	}
	return nil
}

func (w Expected) check(r Report) error {
	a := r.Answer
	at := w.At
	if at == "" {
		at = "app"
	}
	if w.Server != "" && a.Server != w.Server || a.At != at {
		return fmt.Errorf("%s of %s answered, not %s of %s", a.At, a.Server, at, w.Server)
	}
	via, from := a.Via, r.Local
	if w.Outbound {
		if len(via) == 0 || via[0].Direction != Outbound {
			return errors.New("the caller's proxy was passed by")
		}
		if h := via[0]; h.Proxy != r.Caller || h.Peer != from || h.Original != r.Remote {
			return fmt.Errorf("the outbound proxy carried another connection: %+v", h)
		}
		from, via = via[0].Upstream, via[1:]
	}
	if w.Inbound {
		if len(via) == 0 || via[0].Direction != Inbound {
			return errors.New("the server's proxy was passed by")
		}
		if err := w.checkInbound(via[0], from, a); err != nil {
			return err
		}
		from, via = via[0].Upstream, via[1:]
	}
	if len(via) > 0 {
		return fmt.Errorf("a proxy carried it that should not have: %+v", via[0])
	}
	if a.Peer != from && (w.Inbound || !w.Masqueraded) {
		return fmt.Errorf("the server was asked by %s, not by %s", a.Peer, from)
	}
	return nil
}

// checkInbound checks the server's proxy, to which the peer at the address from connected.
func (w Expected) checkInbound(h Hop, from netip.AddrPort, a *Answer) error {
	if h.Proxy != a.Server || h.Original != a.Local || h.Peer != from && !w.Masqueraded {
		return fmt.Errorf("the inbound proxy carried another connection: %+v", h)
	}
	want := passthrough4
	if h.Peer.Addr().Is6() {
		want = passthrough6
	}
	if w.Transparent {
		want = h.Peer.Addr()
	}
	if h.Upstream.Addr() != want {
		return fmt.Errorf("the inbound proxy went on as %s, not as %s", h.Upstream.Addr(), want)
	}
	return nil
}
