// Package name implements a minimal DNS client and server. The server and each proxy add a record
// with the name of their pod to the response, so that the client knows which of them handled the
// query.
package name

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/miekg/dns"
)

// Owner names of the records that proxies and servers add.
const (
	Proxy  = "proxy.mesh."
	Server = "server.mesh."
)

// Answered4 and Answered6 are the addresses that this package's server returns for every name.
var (
	Answered4 = netip.MustParseAddr("192.0.2.53")
	Answered6 = netip.MustParseAddr("2001:db8::53")
)

// A Resolution is the content of a DNS response.
type Resolution struct {
	// Proxy is the pod of the proxy that forwarded the query; empty if no proxy did.
	Proxy string `json:"proxy,omitempty"`
	// Server is the pod of the server, and Peer is the source address of the query. Both are zero
	// if the response is not from this package's server.
	Server string         `json:"server,omitempty"`
	Peer   netip.AddrPort `json:"peer,omitzero"`
	// Addresses contains the addresses in the answer section. Code is the response code, such as
	// "NOERROR".
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Code      string       `json:"code,omitempty"`
	// Error is the reason for a missing or invalid response.
	Error string `json:"error,omitempty"`
}

// AddText adds a TXT record with an owner name and texts to a response.
func AddText(response *dns.Msg, owner string, texts ...string) {
	response.Compress = true
	response.Extra = append(response.Extra, &dns.TXT{
		Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: texts,
	})
}

// Read returns the content of a response. It returns an error if the response contains records of
// two proxies, or if the server's record contains an invalid address.
func Read(response *dns.Msg) (Resolution, error) {
	r := Resolution{Code: dns.RcodeToString[response.Rcode]}
	for _, record := range response.Answer {
		var address netip.Addr
		switch record := record.(type) {
		case *dns.A:
			address, _ = netip.AddrFromSlice(record.A.To4())
		case *dns.AAAA:
			address, _ = netip.AddrFromSlice(record.AAAA.To16())
		}
		if address.IsValid() {
			r.Addresses = append(r.Addresses, address)
		}
	}
	for _, record := range response.Extra {
		text, ok := record.(*dns.TXT)
		switch {
		case !ok:
		case text.Hdr.Name == Proxy && len(text.Txt) == 1 && r.Proxy != "":
			return Resolution{}, errors.New("two proxies forwarded the query")
		case text.Hdr.Name == Proxy && len(text.Txt) == 1:
			r.Proxy = text.Txt[0]
		case text.Hdr.Name == Server && len(text.Txt) == 2:
			var err error
			if r.Peer, err = netip.ParseAddrPort(text.Txt[1]); err != nil {
				return Resolution{}, fmt.Errorf("parse the server's record: %w", err)
			}
			r.Server = text.Txt[0]
		}
	}
	return r, nil
}

// Answer returns the response to a query from peer. Each name has the address [Answered4] or
// [Answered6].
func Answer(query *dns.Msg, pod string, peer netip.AddrPort) *dns.Msg {
	response := new(dns.Msg).SetReply(query)
	response.Authoritative = true
	for _, q := range query.Question {
		header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: q.Qclass, Ttl: 1}
		switch q.Qtype {
		case dns.TypeA:
			response.Answer = append(response.Answer,
				&dns.A{Hdr: header, A: Answered4.AsSlice()})
		case dns.TypeAAAA:
			response.Answer = append(response.Answer,
				&dns.AAAA{Hdr: header, AAAA: Answered6.AsSlice()})
		}
	}
	AddText(response, Server, pod, peer.String())
	return response
}
