package source_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestServerMayBeBelowAPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := startInMemory(t)
		path := server.KubeconfigWith(func(cluster, _ fields) {
			cluster["server"] = server.URL() + "/k8s/clusters/c-1/?x=y"
		})
		// The server has no object at this path.
		got := newSource(t, source.Options{
			Kubeconfig: path, Dial: server.Dial, Timeout: time.Millisecond,
		})
		requestPod(t.Context(), got, web).check(t, source.NotFound, "404")
		if want := "/k8s/clusters/c-1/api/v1/namespaces/default/pods/web"; len(server.Requests()) != 1 || server.Requests()[0].Path != want {
			t.Errorf("requests %q, want only %q", paths(server), want)
		}
	})
}

func TestWhichProxyIsUsed(t *testing.T) {
	for _, row := range []struct{ name, proxy, dialed string }{
		{"none, despite the environment", "", "memory.test:443"},
		{"the proxy of the kubeconfig", "http://proxy.test:3128", "proxy.test:3128"},
		{"the proxy of the kubeconfig, with TLS", "https://proxy.test", "proxy.test:443"},
		{"the proxy of the kubeconfig, with SOCKS", "socks5://proxy.test:1080", "proxy.test:1080"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := apiservertest.StartInMemory(t)
			path := server.KubeconfigWith(func(cluster, _ fields) {
				if row.proxy != "" {
					cluster["proxy-url"] = row.proxy
				}
			})
			var dialed string
			api := newSource(t, source.Options{Kubeconfig: path, Dial: func(
				_ context.Context, _, address string,
			) (net.Conn, error) {
				dialed = address
				return nil, net.ErrClosed
			}})
			if err := api.Ready(t.Context()); !source.IsUnavailable(err) || dialed != row.dialed {
				t.Errorf("connects to %s, want %s; error %v, want the kind unavailable", dialed,
					row.dialed, err)
			}
		})
	}
}

func TestConnectTimeIsDistinguishedFromResponseTime(t *testing.T) {
	server := apiservertest.StartInMemory(t)
	api := newSource(t, source.Options{Kubeconfig: server.Kubeconfig(), Dial: func(
		context.Context, string, string,
	) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}})
	checkText(t, api.Ready(t.Context()), "API server memory.test:443: no connection within ")
}
