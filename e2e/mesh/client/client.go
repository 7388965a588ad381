// Package client sends requests to servers of a mesh, and reports their answers and the addresses of
// its connections.
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
	return report(ctx, caller, func(r *path.Report) error { return get(url, r, hold) })
}

// Datagram sends a UDP datagram to an address with port, at least once, and repeats it until a
// response arrives or ctx is done.
func Datagram(ctx context.Context, caller, to string) path.Report {
	return report(ctx, caller, func(r *path.Report) error { return datagram(to, r) })
}

// report repeats an attempt until it succeeds or ctx is done. The attempt stores the addresses and
// the answer in its report.
func report(ctx context.Context, caller string, try func(*path.Report) error) path.Report {
	return retry(ctx, func() (path.Report, bool) {
		r := path.Report{Caller: caller, Answer: &path.Answer{}}
		err := try(&r)
		if err != nil {
			r.Answer, r.Error = nil, err.Error()
		}
		return r, err == nil
	})
}

// retry repeats an attempt until it succeeds or ctx is done, and returns the last result.
func retry[T any](ctx context.Context, try func() (result T, succeeded bool)) T {
	tick := time.NewTicker(retryDelay)
	defer tick.Stop()
	for {
		result, succeeded := try()
		if succeeded {
			return result
		}
		select {
		case <-ctx.Done():
			return result
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
