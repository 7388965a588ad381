package plugin_test

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// newPod is a running pod with an application and a proxy, and a neighbour.
func newPod(t *testing.T, proxy testbed.ProxyOptions) *testbed.Network {
	t.Helper()
	netnstest.RequireRoot(t)
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := network.StartProxy(proxy); err != nil {
		t.Fatal(err)
	}
	if err := network.StartApplication(testbed.ApplicationOwner); err != nil {
		t.Fatal(err)
	}
	return network
}

// answers fails the test unless calls out of the pod and into it are answered by these.
func answers(t *testing.T, network *testbed.Network, out, in testbed.Name) {
	t.Helper()
	for _, tc := range []struct {
		call testbed.Call
		want testbed.Name
	}{
		{
			testbed.Call{
				From: testbed.FromPod, Owner: testbed.ApplicationOwner, Network: "tcp",
				To: netip.MustParseAddrPort("10.9.9.9:80"),
			},
			out,
		},
		{
			testbed.Call{
				From: testbed.FromNeighbour, Network: "tcp",
				To: netip.MustParseAddrPort("10.244.1.5:8080"),
			},
			in,
		},
	} {
		tc.call.Timeout = 20 * time.Second // on a busy machine
		if got, err := network.Dial(tc.call); err != nil || got.By != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.call, got, err, tc.want)
		}
	}
}

// A pod of the mesh from ADD to DEL, in both modes and with both backends.
func TestLifeOfAPod(t *testing.T) {
	for _, tc := range []struct {
		name, file, backend string
		proxy               testbed.ProxyOptions
	}{
		{"redirect", "sidecar", "auto", testbed.ProxyOptions{Owner: testbed.ProxyOwner}},
		{
			"tproxy", "tproxy", "auto",
			testbed.ProxyOptions{Owner: testbed.TProxyOwner, Transparent: true},
		},
		{
			"redirect by legacy", "sidecar", "legacy",
			testbed.ProxyOptions{Owner: testbed.ProxyOwner},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			network := newPod(t, tc.proxy)
			w := newWorld(t, tc.file)
			c := newCall(t, network.Pod)
			c.stdin = c.with(`"backend":"` + tc.backend + `"`)
			answers(t, network, testbed.Outside, testbed.Application)

			if got := w.add(t, c); got != c.prevResult {
				t.Errorf("result: %s", got)
			}
			if err := network.Settle(rules.MustCompile(*c.record(t).Redirect).Routing); err != nil {
				t.Fatal(err)
			}
			answers(t, network, testbed.Outbound, testbed.Inbound)
			w.source.pod = nil // nobody is asked again
			if e := w.call("CHECK", c); e != nil {
				t.Errorf("CHECK: %v", e)
			}

			tamper(t, network.Pod)
			e := w.call("CHECK", c)
			if e == nil || e.Code != 104 ||
				!strings.Contains(e.Msg, "is incorrect") ||
				!strings.Contains(e.Details, "missing") {
				t.Errorf("CHECK of a pod whose rules are gone: %+v", e)
			}
			w.source.pod = readPod(t, tc.file)
			w.add(t, c)
			answers(t, network, testbed.Outbound, testbed.Inbound)
			w.stderr.Reset()
			w.add(t, c)
			if line := w.logged(t)[0]; line["outcome"] != "unchanged" ||
				line["backend"] != string(c.record(t).Backend) {
				t.Errorf("log of an ADD that finds all as it should be: %v", line)
			}

			if e := w.call("DEL", c); e != nil {
				t.Errorf("DEL: %v", e)
			}
			holdsNothing(t, network.Pod)
			c.wantNoRecord(t)
			answers(t, network, testbed.Outside, testbed.Application)
			if e := w.call("CHECK", c); e == nil || e.Code != 104 {
				t.Errorf("CHECK after DEL: %+v", e)
			}
			if e := w.call("DEL", c); e != nil {
				t.Errorf("DEL again: %v", e)
			}
		})
	}
}

// tamper removes the rules between two calls of the plugin.
func tamper(t *testing.T, ns *netns.NS) {
	t.Helper()
	b, err := compat.Choose(compat.BackendAuto)
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := b.Remove(ns); err != nil || !removed {
		t.Fatal(removed, err)
	}
}

// A plugin that stands alone has no previous result: it takes the addresses of the namespace, and
// prints an empty result.
func TestADDWithoutPreviousResult(t *testing.T) {
	network := newPod(t, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	w := newWorld(t, "dual-stack")
	c := newCall(t, network.Pod)
	c.prevResult = "null"
	c.stdin = c.with()
	if got := w.add(t, c); got != `{"cniVersion":"1.1.0"}` {
		t.Errorf("result: %s", got)
	}
	if r := c.record(t); r.Redirect == nil || !r.Redirect.IPv6 {
		t.Errorf("record: %+v, want IPv6 captured", r)
	}
	answers(t, network, testbed.Outbound, testbed.Inbound)
}

// The addresses of a further attachment may say nothing about the pod's families: those of the
// namespace count then, as without a result. A pod that has none fails.
func TestADDOfAnAttachmentWithALinkLocalAddress(t *testing.T) {
	network := newPod(t, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	for _, row := range []struct {
		name, file string
		beside     bool // another attachment
		ipv6       bool
	}{
		{"beside another", "sidecar", true, false},
		{"alone", "sidecar", false, false},
		{"beside another, dual-stack", "dual-stack", true, true},
		{"alone, dual-stack", "dual-stack", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, row.file)
			first := newCall(t, network.Pod)
			first.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.5/24"},{"address":"fd00::5/64"}]}`
			first.stdin = first.with()
			second := first
			second.ifname = "net1"
			second.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"169.254.3.4/16"},{"address":"fe80::4/64"}]}`
			second.stdin = second.with()
			if row.beside {
				w.add(t, first)
			}
			w.add(t, second)
			all, err := record.In(first.runDir).Of(first.id)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range all {
				if r.Redirect == nil || r.Redirect.IPv6 != row.ipv6 {
					t.Errorf("record of %s: %+v, want IPv6 %v", r.IfName, r.Redirect, row.ipv6)
				}
			}
			if e := w.call("CHECK", second); e != nil {
				t.Errorf("CHECK: %+v", e)
			}
		})
	}
	w, c := newWorld(t, "sidecar"), newCall(t, netnstest.New(t))
	c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"169.254.3.4/16"}]}`
	c.stdin = c.with()
	e := w.call("ADD", c)
	if e == nil || e.Code != 101 ||
		!strings.Contains(e.Details, "want one that is neither loopback nor link-local") {
		t.Errorf("%+v", e)
	}
}

// DEL leaves rules alone that somebody needs, or that the runtime takes away with the namespace in
// a moment.
func TestDELKeepsRules(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, c *sandboxCall){
		"of a Kubernetes sandbox": func(_ *testing.T, c *sandboxCall) {
			c.args += ";K8S_POD_INFRA_CONTAINER_ID=" + c.id
		},
		"of the pod's other attachment": func(t *testing.T, c *sandboxCall) {
			other := c.record(t)
			other.IfName = "net1"
			if err := record.In(c.runDir).Put(other); err != nil {
				t.Fatal(err)
			}
		},
		"of a pod that it has left alone": func(t *testing.T, c *sandboxCall) {
			r := c.record(t)
			r.Redirect = nil
			if err := record.In(c.runDir).Put(r); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			w.add(t, c)
			change(t, &c)
			if e := w.call("DEL", c); e != nil {
				t.Errorf("DEL: %v", e)
			}
			holds(t, ns)
			if _, err := record.In(c.runDir).Get(record.Key{
				ContainerID: c.id, IfName: "eth0",
			}); err == nil {
				t.Error("the record is still there")
			}
		})
	}
}

// CHECK does without a record, or with one that is damaged or another pod's: then it asks for the
// pod.
func TestCHECKWithoutRecord(t *testing.T) {
	for name, spoil := range map[string]func(*sandboxCall){
		"none":          func(c *sandboxCall) { c.runDir = c.runDir + "/other" },
		"another pod's": func(c *sandboxCall) { c.args += "9" },
	} {
		t.Run(name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			w.add(t, c)
			spoil(&c)
			c.stdin = c.with()
			w.source.asked = nil
			if e := w.call("CHECK", c); e != nil {
				t.Errorf("CHECK: %v", e)
			}
			if len(w.source.asked) != 1 {
				t.Errorf("asked: %v", w.source.asked)
			}
			tamper(t, ns)
			if e := w.call("CHECK", c); e == nil || e.Code != 104 {
				t.Errorf("CHECK of a pod whose rules are gone: %+v", e)
			}
			w.source.pod = readPod(t, "plain")
			if e := w.call("CHECK", c); e != nil {
				t.Errorf("CHECK of a pod that is left alone: %v", e)
			}
		})
	}
}

// CHECK fails, too, where it cannot find out.
func TestCHECKWithUnknownResult(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world, c *sandboxCall)
		code   uint
	}{
		{"the namespace is gone", func(_ *world, c *sandboxCall) {
			c.netns = "/run/netns/gone"
		}, types.ErrInvalidNetNS},
		{
			"the pod cannot be read", func(w *world, _ *sandboxCall) {
				w.source.err = errors.New("no answer")
			},
			types.ErrTryAgainLater,
		},
		{
			"the result is wrong", func(_ *world, c *sandboxCall) {
				c.prevResult = "7"
				c.stdin = c.with()
			},
			types.ErrInvalidNetworkConfig,
		},
		{"the configuration is wrong", func(_ *world, c *sandboxCall) {
			c.stdin = c.with(`"backend":"x"`)
		}, types.ErrInvalidNetworkConfig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			tc.change(w, &c)
			if e := w.call("CHECK", c); e == nil || e.Code != tc.code {
				t.Errorf("%+v, want code %d", e, tc.code)
			}
		})
	}
}

// The host's own namespace is left alone by DEL, unless the caller vouches for it.
func TestDELInTheHostNamespace(t *testing.T) {
	for override, asked := range map[string]bool{"": false, "0": false, "1": true, "True": true} {
		w := newWorld(t, "")
		c := newCall(t, nil)
		c.netns, c.override = "/proc/self/ns/net", override
		found := false
		w.Backend = func(compat.BackendName) (compat.Backend, error) {
			found = true
			return idle{}, nil
		}
		if e := w.call("DEL", c); e != nil || found != asked {
			t.Errorf("override %q: %v, a backend was asked for: %t, want %t", override, e, found,
				asked)
		}
	}
}

// A runtime that does not read the result has an error.
func TestADDWhoseResultIsNotRead(t *testing.T) {
	w := newWorld(t, "plain")
	w.Stdout = failingWriter{}
	if e := w.call("ADD", newCall(t, nil)); e == nil || e.Code != types.ErrIOFailure {
		t.Errorf("%+v", e)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
