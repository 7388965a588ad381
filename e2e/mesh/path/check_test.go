package path_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

func end(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// whole returns the report of a request that both proxies forwarded, modified by change.
func whole(change func(r *path.Report)) path.Report {
	r := path.Report{
		Caller: "a", Local: end("10.0.0.1:1001"), Remote: end("10.96.0.1:80"),
		Answer: &path.Answer{
			Server: "b", At: "app", Local: end("10.0.0.2:8080"), Peer: end("127.0.0.6:1003"),
			Via: []path.Hop{
				{
					"a", path.Outbound, end("10.0.0.1:1001"), end("10.96.0.1:80"),
					end("10.0.0.1:1002"),
				},
				{
					"b", path.Inbound, end("10.0.0.1:1002"), end("10.0.0.2:8080"),
					end("127.0.0.6:1003"),
				},
			},
		},
	}
	change(&r)
	return r
}

func TestRequestIsCheckedByItsProxies(t *testing.T) {
	captured := path.Captured("b")
	for _, c := range []struct {
		name   string
		way    path.Expected
		change func(r *path.Report)
		want   string // part of the error; empty for none
	}{
		{"both proxies carried it", captured, func(*path.Report) {}, ""},
		{"neither did", captured, func(r *path.Report) {
			r.Answer.Via, r.Answer.Peer = nil, r.Local
		}, "the caller's proxy was passed by"},
		{"only the server's did", captured, func(r *path.Report) {
			r.Answer.Via = r.Answer.Via[1:]
			r.Answer.Via[0].Peer = r.Local
		}, "the caller's proxy was passed by"},
		{"only the caller's did", captured, func(r *path.Report) {
			r.Answer.Via, r.Answer.Peer = r.Answer.Via[:1], r.Answer.Via[0].Upstream
		}, "the server's proxy was passed by"},
		{"another connection has the same proxies", captured, func(r *path.Report) {
			r.Local = end("10.0.0.1:999")
		}, "the outbound proxy carried another connection"},
		{"another pod's proxy carried it", captured, func(r *path.Report) {
			r.Answer.Via[0].Proxy = "c"
		}, "the outbound proxy carried another connection"},
		{"the proxy asked somebody else", captured, func(r *path.Report) {
			r.Answer.Via[0].Original = end("10.96.0.2:80")
		}, "the outbound proxy carried another connection"},
		{"the chain is broken between the pods", captured, func(r *path.Report) {
			r.Answer.Via[1].Peer = end("10.89.0.2:1002")
		}, "the inbound proxy carried another connection"},
		{
			"the chain is broken, and should be",
			path.Expected{Server: "b", Outbound: true, Inbound: true, Masqueraded: true},
			func(r *path.Report) {
				r.Answer.Via[1].Peer = end("10.89.0.2:1002")
			}, "",
		},
		{"the application is asked by somebody else", captured, func(r *path.Report) {
			r.Answer.Peer = end("127.0.0.6:999")
		}, "the server was asked by 127.0.0.6:999"},
		{"the inbound proxy has the pod's address", captured, func(r *path.Report) {
			r.Answer.Via[1].Upstream, r.Answer.Peer = end("10.0.0.2:1003"), end("10.0.0.2:1003")
		}, "went on as 10.0.0.2, not as 127.0.0.6"},
		{"the inbound proxy is transparent, and should not be", captured, func(r *path.Report) {
			r.Answer.Via[1].Upstream, r.Answer.Peer = end("10.0.0.1:1003"), end("10.0.0.1:1003")
		}, "went on as 10.0.0.1, not as 127.0.0.6"},
		{
			"the inbound proxy is transparent",
			path.Expected{Server: "b", Outbound: true, Inbound: true, Transparent: true},
			func(r *path.Report) {
				r.Answer.Via[1].Upstream, r.Answer.Peer = end("10.0.0.1:1003"), end("10.0.0.1:1003")
			}, "",
		},
		{"another pod answered", captured, func(r *path.Report) {
			r.Answer.Server = "c"
		}, "app of c answered, not app of b"},
		{"the proxy answered itself", captured, func(r *path.Report) {
			r.Answer.At = "proxy 15006"
		}, "proxy 15006 of b answered"},
		{"nobody answered", captured, func(r *path.Report) {
			r.Answer, r.Error = nil, "refused"
		}, "not answered: refused"},
		{
			"a proxy carried it that should not have",
			path.Expected{Server: "b", Outbound: true},
			func(*path.Report) {}, "carried it that should not have",
		},
		{"no proxy carried it, and none should", path.Expected{Server: "b"}, func(r *path.Report) {
			r.Answer.Via, r.Answer.Peer = nil, r.Local
		}, ""},
		{"who asked is not the caller", path.Expected{Server: "b"}, func(r *path.Report) {
			r.Answer.Via = nil
		}, "the server was asked by 127.0.0.6:1003"},
		{
			"the caller is translated",
			path.Expected{Server: "b", Masqueraded: true},
			func(r *path.Report) {
				r.Answer.Via, r.Answer.Peer = nil, end("10.89.0.2:7")
			}, "",
		},
	} {
		err := whole(c.change).Check(c.way)
		if got := errorText(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestInIPv6TheInboundProxyIsColonColonSix(t *testing.T) {
	r := path.Report{
		Caller: "a", Local: end("[fd00::1]:1001"), Remote: end("[fd00::2]:80"),
		Answer: &path.Answer{
			Server: "b", At: "app", Local: end("[fd00::2]:80"), Peer: end("[::6]:1003"),
			Via: []path.Hop{{
				"b", path.Inbound, end("[fd00::1]:1001"), end("[fd00::2]:80"), end("[::6]:1003"),
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
