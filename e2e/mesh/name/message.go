// Package name implements a minimal DNS client and server. The server and each proxy add a record
// with the name of their pod to the response. The client thereby knows which of them handled the
// query.
package name

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
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
	// if another DNS server responded.
	Server string         `json:"server,omitempty"`
	Peer   netip.AddrPort `json:"peer,omitzero"`
	// Addresses contains the addresses in the answer section. Code is the response code, such as
	// "RCodeSuccess".
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Code      string       `json:"code,omitempty"`
	// Error is the reason for a missing response.
	Error string `json:"error,omitempty"`
}

// signature is the content of the record that the server adds.
type signature struct {
	Server string         `json:"server"`
	Peer   netip.AddrPort `json:"peer"`
}

// Query returns a query for the IPv4 address of a host, or for its IPv6 address if isIPv6 is true.
func Query(host string, isIPv6 bool) ([]byte, error) {
	owner, err := dnsmessage.NewName(host)
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", host, err)
	}
	recordType := dnsmessage.TypeA
	if isIPv6 {
		recordType = dnsmessage.TypeAAAA
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0x5c1c, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: owner, Type: recordType, Class: dnsmessage.ClassINET}},
	}
	return m.Pack()
}

// Sign adds a TXT record with an owner name and a text to a response.
func Sign(answer []byte, owner, text string) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return nil, fmt.Errorf("parse the response: %w", err)
	}
	m.Additionals = append(m.Additionals, dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{
			Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET,
		},
		Body: &dnsmessage.TXTResource{TXT: []string{text}},
	})
	return m.Pack()
}

// Read parses a response. It returns an error if two proxies have signed it.
func Read(answer []byte) (Resolution, error) {
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return Resolution{}, fmt.Errorf("parse the response: %w", err)
	}
	r := Resolution{Code: m.RCode.String()}
	for _, a := range m.Answers {
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			r.Addresses = append(r.Addresses, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			r.Addresses = append(r.Addresses, netip.AddrFrom16(body.AAAA))
		}
	}
	for _, a := range m.Additionals {
		text, ok := a.Body.(*dnsmessage.TXTResource)
		switch {
		case !ok || len(text.TXT) != 1:
		case a.Header.Name.String() == Proxy && r.Proxy != "":
			return Resolution{}, errors.New("two proxies forwarded the query")
		case a.Header.Name.String() == Proxy:
			r.Proxy = text.TXT[0]
		case a.Header.Name.String() == Server:
			var s signature
			if err := json.Unmarshal([]byte(text.TXT[0]), &s); err != nil {
				return Resolution{}, fmt.Errorf("parse the server's record: %w", err)
			}
			r.Server, r.Peer = s.Server, s.Peer
		}
	}
	return r, nil
}

// Answer returns the response to a query from peer. Each name has the address [Answered4] or
// [Answered6].
func Answer(query []byte, pod string, peer netip.AddrPort) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, fmt.Errorf("parse the query: %w", err)
	}
	m.Response, m.Authoritative = true, true
	m.Additionals = nil
	for _, q := range m.Questions {
		a := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{
			Name: q.Name, Class: q.Class, TTL: 1,
		}}
		switch q.Type {
		case dnsmessage.TypeA:
			a.Body = &dnsmessage.AResource{A: Answered4.As4()}
		case dnsmessage.TypeAAAA:
			a.Body = &dnsmessage.AAAAResource{AAAA: Answered6.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, a)
	}
	packed, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
	}
	text, err := json.Marshal(signature{pod, peer})
	if err != nil {
		return nil, err
	}
	return Sign(packed, Server, string(text))
}
