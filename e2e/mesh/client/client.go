// Package client sends requests to servers of a mesh, and reports their answers and its own
// addresses.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

const (
	// tryTimeout is the time limit of an attempt.
	tryTimeout = 3 * time.Second
	// retryDelay is the delay between two attempts.
	retryDelay = 50 * time.Millisecond
)

// Get requests a URL, at least once, and repeats the request until a server responds with status
// 200 or ctx is done. Each attempt uses a new connection. After the response, Get keeps the
// connection open until hold returns.
func Get(ctx context.Context, caller, url string, hold func()) path.Report {
	return retry(ctx, func() path.Report {
		r := path.Report{Caller: caller}
		r.Answer = &path.Answer{}
		if err := get(url, &r, hold); err != nil {
			r.Answer, r.Error = nil, err.Error()
		}
		return r
	})
}

// Datagram sends a UDP datagram to an address with port, at least once, and repeats it until a
// response arrives or ctx is done.
func Datagram(ctx context.Context, caller, to string) path.Report {
	return retry(ctx, func() path.Report {
		r := path.Report{Caller: caller}
		r.Answer = &path.Answer{}
		if err := datagram(to, &r); err != nil {
			r.Answer, r.Error = nil, err.Error()
		}
		return r
	})
}

// retry repeats an attempt until a response arrives or ctx is done.
func retry(ctx context.Context, try func() path.Report) path.Report {
	tick := time.NewTicker(retryDelay)
	defer tick.Stop()
	for {
		r := try()
		if r.Answer != nil {
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-tick.C:
		}
	}
}

// get makes one attempt, and stores the addresses and the answer in r.
func get(url string, r *path.Report, hold func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	var conn net.Conn
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return conn, err
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if conn != nil {
		r.Local, r.Remote = path.AddrPort(conn.LocalAddr()), path.AddrPort(conn.RemoteAddr())
	}
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	// The transport closes the connection after the response. A duplicate of the descriptor keeps
	// it open until hold returns.
	kept, err := conn.(*net.TCPConn).File()
	if err != nil {
		return err
	}
	defer func() { _ = kept.Close() }()
	if err := json.NewDecoder(response.Body).Decode(r.Answer); err != nil {
		return err
	}
	hold()
	return nil
}

// datagram makes one attempt, and stores the addresses and the answer in r.
func datagram(to string, r *path.Report) error {
	conn, err := net.DialTimeout("udp", to, tryTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	r.Local, r.Remote = path.AddrPort(conn.LocalAddr()), path.AddrPort(conn.RemoteAddr())
	if err := conn.SetDeadline(time.Now().Add(tryTimeout)); err != nil {
		return err
	}
	// The server answers every datagram, whatever its content.
	if _, err := conn.Write([]byte("?")); err != nil {
		return err
	}
	return json.NewDecoder(conn).Decode(r.Answer)
}
