package path

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
)

// passthrough4 and passthrough6 are the source addresses of a proxy's connections to the
// application without TPROXY.
var (
	passthrough4 = netip.MustParseAddr("127.0.0.6")
	passthrough6 = netip.MustParseAddr("::6")
)

// An Expected is the expected path of a request. The zero value is a path without proxies.
type Expected struct {
	// Server is the pod that must respond; empty for any pod. At is the part of the pod that must
	// respond; empty for the application ("app").
	Server, At string
	// Outbound is true if the caller's proxy must forward the request. Inbound is true if the
	// server's proxy must forward the request.
	Outbound, Inbound bool
	// Transparent is true if the server's proxy keeps the caller's address, as with TPROXY.
	Transparent bool
	// Masqueraded is true if the caller's address is translated between the pods. The source
	// address at the server's pod is then not compared.
	Masqueraded bool
}

// Captured returns the path from one mesh pod to another.
func Captured(server string) Expected {
	return Expected{Server: server, Outbound: true, Inbound: true}
}

// Check returns nil if there was a response and the request took exactly the expected path. The
// error describes the first deviation.
func (r Report) Check(expected Expected) error {
	if r.Answer == nil {
		return fmt.Errorf("%s: no response: %s", r.Caller, r.Error)
	}
	if err := expected.check(r); err != nil {
		return fmt.Errorf("%s to %s from %s: %w; answer: %+v", r.Caller,
			r.Remote, r.Local, err, *r.Answer)
	}
	return nil
}

// check compares the path of a request that was answered.
func (e Expected) check(r Report) error {
	a := r.Answer
	at := cmp.Or(e.At, "app")
	if e.Server != "" && a.Server != e.Server || a.At != at {
		return fmt.Errorf("%s of %s responded, not %s of %s", a.At, a.Server, at,
			cmp.Or(e.Server, "any pod"))
	}
	via, from := a.Via, r.Local
	if e.Outbound {
		if len(via) == 0 || via[0].Direction != Outbound {
			return errors.New("the caller's proxy was bypassed")
		}
		if h := via[0]; h.Proxy != r.Caller || h.Peer != from || h.Original != r.Remote {
			return fmt.Errorf("the outbound proxy forwarded a different connection: %+v", h)
		}
		from, via = via[0].Upstream, via[1:]
	}
	if e.Inbound {
		if len(via) == 0 || via[0].Direction != Inbound {
			return errors.New("the server's proxy was bypassed")
		}
		if err := e.checkInbound(via[0], from, a); err != nil {
			return err
		}
		from, via = via[0].Upstream, via[1:]
	}
	if len(via) > 0 {
		return fmt.Errorf("unexpected proxy: %+v", via[0])
	}
	if a.Peer != from && (e.Inbound || !e.Masqueraded) {
		return fmt.Errorf("the server's peer is %s, not %s", a.Peer, from)
	}
	return nil
}

// checkInbound checks the hop of the server's proxy. The peer of the hop must be from, unless the
// address is masqueraded.
func (e Expected) checkInbound(h Hop, from netip.AddrPort, a *Answer) error {
	if h.Proxy != a.Server || h.Original != a.Local || h.Peer != from && !e.Masqueraded {
		return fmt.Errorf("the inbound proxy forwarded a different connection: %+v", h)
	}
	want := passthrough4
	if h.Peer.Addr().Is6() {
		want = passthrough6
	}
	if e.Transparent {
		want = h.Peer.Addr()
	}
	if h.Upstream.Addr() != want {
		return fmt.Errorf("the inbound proxy connected from %s, not %s", h.Upstream.Addr(), want)
	}
	return nil
}
