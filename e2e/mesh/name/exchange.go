package name

import (
	"net"
	"time"

	"github.com/miekg/dns"
)

// maxDatagram is the size in bytes of the buffer for a UDP message. Longer messages, which the
// tests do not send, are truncated.
const maxDatagram = 4096

// Timeout is the time limit of an exchange.
const Timeout = 3 * time.Second

// Exchange sends a query over a connection, and returns the response.
func Exchange(conn net.Conn, query *dns.Msg) (*dns.Msg, error) {
	c := dns.Client{Timeout: Timeout, UDPSize: maxDatagram}
	response, _, err := c.ExchangeWithConn(query, &dns.Conn{Conn: conn})
	return response, err
}

// Forward is Exchange for the proxy of a pod: it adds the name of the pod to the response.
func Forward(conn net.Conn, query *dns.Msg, pod string) (*dns.Msg, error) {
	response, err := Exchange(conn, query)
	if err == nil {
		AddText(response, Proxy, pod)
	}
	return response, err
}
