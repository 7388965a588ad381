package path_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

func endpoint(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// capturedReport returns the report of a request that both proxies forwarded, modified by change.
func capturedReport(change func(r *path.Report)) path.Report {
	r := path.Report{
		Caller: "a", Local: endpoint("10.0.0.1:1001"), Remote: endpoint("10.96.0.1:80"),
		Answer: &path.Answer{
			Server: "b", At: "app", Local: endpoint("10.0.0.2:8080"), Peer: endpoint("127.0.0.6:1003"),
			Via: []path.Hop{
				{
					"a", path.Outbound, endpoint("10.0.0.1:1001"), endpoint("10.96.0.1:80"),
					endpoint("10.0.0.1:1002"),
				},
				{
					"b", path.Inbound, endpoint("10.0.0.1:1002"), endpoint("10.0.0.2:8080"),
					endpoint("127.0.0.6:1003"),
				},
			},
		},
	}
	change(&r)
	return r
}

func TestCheck(t *testing.T) {
	captured := path.Captured("b")
	for _, c := range []struct {
		name     string
		expected path.Expected
		change   func(r *path.Report)
		want     string // part of the error; empty for none
	}{
		{"both proxies forwarded the request", captured, func(*path.Report) {}, ""},
		{"no proxy forwarded the request", captured, func(r *path.Report) {
			r.Answer.Via, r.Answer.Peer = nil, r.Local
		}, "the caller's proxy was bypassed"},
		{"only the server's proxy forwarded the request", captured, func(r *path.Report) {
			r.Answer.Via = r.Answer.Via[1:]
			r.Answer.Via[0].Peer = r.Local
		}, "the caller's proxy was bypassed"},
		{"only the caller's proxy forwarded the request", captured, func(r *path.Report) {
			r.Answer.Via, r.Answer.Peer = r.Answer.Via[:1], r.Answer.Via[0].Upstream
		}, "the server's proxy was bypassed"},
		{"another connection through the same proxies", captured, func(r *path.Report) {
			r.Local = endpoint("10.0.0.1:999")
		}, "the outbound proxy forwarded a different connection"},
		{"the proxy of another pod forwarded the request", captured, func(r *path.Report) {
			r.Answer.Via[0].Proxy = "c"
		}, "the outbound proxy forwarded a different connection"},
		{"the proxy connected to another destination", captured, func(r *path.Report) {
			r.Answer.Via[0].Original = endpoint("10.96.0.2:80")
		}, "the outbound proxy forwarded a different connection"},
		{"address translation between the pods", captured, func(r *path.Report) {
			r.Answer.Via[1].Peer = endpoint("10.89.0.2:1002")
		}, "the inbound proxy forwarded a different connection"},
		{
			"expected address translation between the pods",
			path.Expected{Server: "b", Outbound: true, Inbound: true, Masqueraded: true},
			func(r *path.Report) {
				r.Answer.Via[1].Peer = endpoint("10.89.0.2:1002")
			}, "",
		},
		{"another host connected to the application", captured, func(r *path.Report) {
			r.Answer.Peer = endpoint("127.0.0.6:999")
		}, "the server's peer is 127.0.0.6:999"},
		{"the inbound proxy uses the pod's address", captured, func(r *path.Report) {
			r.Answer.Via[1].Upstream, r.Answer.Peer = endpoint("10.0.0.2:1003"), endpoint("10.0.0.2:1003")
		}, "connected from 10.0.0.2, not 127.0.0.6"},
		{"the inbound proxy is unexpectedly transparent", captured, func(r *path.Report) {
			r.Answer.Via[1].Upstream, r.Answer.Peer = endpoint("10.0.0.1:1003"), endpoint("10.0.0.1:1003")
		}, "connected from 10.0.0.1, not 127.0.0.6"},
		{
			"the inbound proxy is transparent",
			path.Expected{Server: "b", Outbound: true, Inbound: true, Transparent: true},
			func(r *path.Report) {
				r.Answer.Via[1].Upstream, r.Answer.Peer = endpoint("10.0.0.1:1003"), endpoint("10.0.0.1:1003")
			}, "",
		},
		{"another pod responded", captured, func(r *path.Report) {
			r.Answer.Server = "c"
		}, "app of c responded, not app of b"},
		{"the proxy itself responded", captured, func(r *path.Report) {
			r.Answer.At = "proxy 15006"
		}, "proxy 15006 of b responded"},
		{"no response", captured, func(r *path.Report) {
			r.Answer, r.Error = nil, "refused"
		}, "no response: refused"},
		{
			"a proxy unexpectedly forwarded the request",
			path.Expected{Server: "b", Outbound: true},
			func(*path.Report) {}, "unexpected proxy",
		},
		{"no proxy forwarded the request, as expected", path.Expected{Server: "b"}, func(r *path.Report) {
			r.Answer.Via, r.Answer.Peer = nil, r.Local
		}, ""},
		{"the server's peer is not the caller", path.Expected{Server: "b"}, func(r *path.Report) {
			r.Answer.Via = nil
		}, "the server's peer is 127.0.0.6:1003"},
		{
			"expected translation of the caller's address",
			path.Expected{Server: "b", Masqueraded: true},
			func(r *path.Report) {
				r.Answer.Via, r.Answer.Peer = nil, endpoint("10.89.0.2:7")
			}, "",
		},
	} {
		err := capturedReport(c.change).Check(c.expected)
		if got := errorText(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: error %q, want %q", c.name, got, c.want)
		}
	}
}

func TestInboundProxyAddressForIPv6(t *testing.T) {
	r := path.Report{
		Caller: "a", Local: endpoint("[fd00::1]:1001"), Remote: endpoint("[fd00::2]:80"),
		Answer: &path.Answer{
			Server: "b", At: "app", Local: endpoint("[fd00::2]:80"), Peer: endpoint("[::6]:1003"),
			Via: []path.Hop{{
				"b", path.Inbound, endpoint("[fd00::1]:1001"), endpoint("[fd00::2]:80"), endpoint("[::6]:1003"),
			}},
		},
	}
	if err := r.Check(path.Expected{Inbound: true}); err != nil {
		t.Error(err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
