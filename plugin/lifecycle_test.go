package plugin_test

import (
	"errors"
	"io"
	"net/netip"
	"path/filepath"
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

// newPod returns the network of a running pod, with an application and a proxy in the pod, and with
// a neighbor.
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

// checkAnswers fails the test unless an outbound connection of the pod is answered by the server
// outbound, and an inbound connection by the server inbound.
func checkAnswers(t *testing.T, network *testbed.Network, outbound, inbound testbed.Name) {
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
			outbound,
		},
		{
			testbed.Call{
				From: testbed.FromNeighbor, Network: "tcp",
				To: netip.MustParseAddrPort("10.244.1.5:8080"),
			},
			inbound,
		},
	} {
		tc.call.Timeout = 20 * time.Second // for a busy machine
		if got, err := network.Dial(tc.call); err != nil || got.By != tc.want {
			t.Errorf("%s: %s, error %v; want %s", tc.call, got, err, tc.want)
		}
	}
}

// TestPodIsRedirectedFromADDToDEL covers a pod of the mesh from ADD to DEL, in both modes and with
// both backends.
func TestPodIsRedirectedFromADDToDEL(t *testing.T) {
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
			env := newTestEnv(t, tc.file)
			c := newCall(t, network.Pod)
			c.stdin = c.configuration(`"backend":"` + tc.backend + `"`)
			checkAnswers(t, network, testbed.Outside, testbed.Application)

			if got := env.add(t, c); got != c.prevResult {
				t.Errorf("result: %s, want the previous one", got)
			}
			if err := network.WaitForRouting(rules.MustCompile(*c.record(t).Redirect).Routing); err != nil {
				t.Fatal(err)
			}
			checkAnswers(t, network, testbed.Outbound, testbed.Inbound)
			env.source.pod = nil // the pod must not be requested again
			if e := env.call("CHECK", c); e != nil {
				t.Errorf("CHECK: %v", e)
			}

			removeRules(t, network.Pod)
			e := env.call("CHECK", c)
			if e == nil || e.Code != 104 ||
				!strings.Contains(e.Msg, "is incorrect") ||
				!strings.Contains(e.Details, "missing") {
				t.Errorf("CHECK of a pod without its rules: %+v, want code 104", e)
			}
			env.source.pod = readPod(t, tc.file)
			env.add(t, c)
			checkAnswers(t, network, testbed.Outbound, testbed.Inbound)
			env.stderr.Reset()
			env.add(t, c)
			if line := env.logLines(t)[0]; line["outcome"] != "unchanged" ||
				line["backend"] != string(c.record(t).Backend) {
				t.Errorf("log of an ADD without a change: %v, want the outcome unchanged", line)
			}

			if e := env.call("DEL", c); e != nil {
				t.Errorf("DEL: %v", e)
			}
			checkNoRules(t, network.Pod)
			c.checkNoRecord(t)
			checkAnswers(t, network, testbed.Outside, testbed.Application)
			if e := env.call("CHECK", c); e == nil || e.Code != 104 {
				t.Errorf("CHECK after DEL: %+v, want code 104", e)
			}
			if e := env.call("DEL", c); e != nil {
				t.Errorf("DEL again: %v", e)
			}
		})
	}
}

// removeRules removes the rules between two calls of the plugin.
func removeRules(t *testing.T, ns *netns.NS) {
	t.Helper()
	b, err := compat.Choose(compat.BackendAuto)
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := b.Remove(ns); err != nil || !removed {
		t.Fatalf("rules removed: %t, error %v; want true", removed, err)
	}
}

// TestADDWithoutPreviousResultUsesTheNamespacesAddresses covers an ADD without a previous result:
// the plugin uses the addresses of the namespace, and prints a result that contains only the
// version.
func TestADDWithoutPreviousResultUsesTheNamespacesAddresses(t *testing.T) {
	network := newPod(t, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	env := newTestEnv(t, "dual-stack")
	c := newCall(t, network.Pod)
	c.prevResult = "null"
	c.stdin = c.configuration()
	if got := env.add(t, c); got != `{"cniVersion":"1.1.0"}` {
		t.Errorf("result: %s, want only the version", got)
	}
	if r := c.record(t); r.Redirect == nil || !r.Redirect.IPv6 {
		t.Errorf("record: %+v, want IPv6 captured", r)
	}
	checkAnswers(t, network, testbed.Outbound, testbed.Inbound)
}

// TestLinkLocalAddressesDoNotDetermineTheFamilies covers a result without an address that
// determines the pod's families. ADD then uses the addresses of the namespace, as without a result.
// ADD fails if the namespace has no such address either.
func TestLinkLocalAddressesDoNotDetermineTheFamilies(t *testing.T) {
	network := newPod(t, testbed.ProxyOptions{Owner: testbed.ProxyOwner})
	for _, row := range []struct {
		name, file string
		additional bool // in addition to another attachment
		ipv6       bool
	}{
		{"an additional attachment", "sidecar", true, false},
		{"alone", "sidecar", false, false},
		{"an additional attachment, dual-stack", "dual-stack", true, true},
		{"alone, dual-stack", "dual-stack", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			env := newTestEnv(t, row.file)
			first := newCall(t, network.Pod)
			first.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.5/24"},{"address":"fd00::5/64"}]}`
			first.stdin = first.configuration()
			second := first
			second.ifname = "net1"
			second.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"169.254.3.4/16"},{"address":"fe80::4/64"}]}`
			second.stdin = second.configuration()
			if row.additional {
				env.add(t, first)
			}
			env.add(t, second)
			all, err := record.In(first.runDir).Of(first.id)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range all {
				if r.Redirect == nil || r.Redirect.IPv6 != row.ipv6 {
					t.Errorf("record of %s: %+v, want IPv6 %v", r.IfName, r.Redirect, row.ipv6)
				}
			}
			if e := env.call("CHECK", second); e != nil {
				t.Errorf("CHECK: %+v", e)
			}
		})
	}
	env, c := newTestEnv(t, "sidecar"), newCall(t, netnstest.New(t))
	c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"169.254.3.4/16"}]}`
	c.stdin = c.configuration()
	e := env.call("ADD", c)
	if e == nil || e.Code != 101 ||
		!strings.Contains(e.Details, "want at least one address that is neither loopback nor link-local") {
		t.Errorf("ADD in a namespace without addresses: %+v, want code 101", e)
	}
}

// TestDELKeepsRules checks that DEL keeps rules that are still needed, that the runtime removes
// with the namespace, or that the attachment did not install.
func TestDELKeepsRules(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, c *sandboxCall){
		"rules of a Kubernetes sandbox": func(_ *testing.T, c *sandboxCall) {
			c.args += ";K8S_POD_INFRA_CONTAINER_ID=" + c.id
		},
		"rules of the pod's other attachment": func(t *testing.T, c *sandboxCall) {
			other := c.record(t)
			other.IfName = "net1"
			if err := record.In(c.runDir).Put(other); err != nil {
				t.Fatal(err)
			}
		},
		"rules of a pod that is not redirected": func(t *testing.T, c *sandboxCall) {
			r := c.record(t)
			r.Redirect, r.Outcome = nil, "skip"
			if err := record.In(c.runDir).Put(r); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			env.add(t, c)
			change(t, &c)
			if e := env.call("DEL", c); e != nil {
				t.Errorf("DEL: %v", e)
			}
			checkHasRules(t, ns)
			if _, err := record.In(c.runDir).Get(record.Key{
				ContainerID: c.id, IfName: "eth0",
			}); err == nil {
				t.Error("the record was not removed")
			}
		})
	}
}

// TestCHECKRequestsThePodWithoutAUsableRecord checks that CHECK requests the pod if the record is
// missing, damaged, or of another pod.
func TestCHECKRequestsThePodWithoutAUsableRecord(t *testing.T) {
	for name, spoil := range map[string]func(*sandboxCall){
		"no record": func(c *sandboxCall) { c.runDir += "/other" },
		"a damaged record": func(c *sandboxCall) {
			writeFile(t, filepath.Join(c.runDir, "attachments", c.id+":eth0.json"), "{")
		},
		"the record of another pod": func(c *sandboxCall) { c.args += "9" },
	} {
		t.Run(name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			env.add(t, c)
			spoil(&c)
			c.stdin = c.configuration()
			env.source.requested = nil
			if e := env.call("CHECK", c); e != nil {
				t.Errorf("CHECK: %v", e)
			}
			if len(env.source.requested) != 1 {
				t.Errorf("requests: %v, want one for the pod", env.source.requested)
			}
			removeRules(t, ns)
			if e := env.call("CHECK", c); e == nil || e.Code != 104 {
				t.Errorf("CHECK of a pod without its rules: %+v, want code 104", e)
			}
			env.source.pod = readPod(t, "plain")
			if e := env.call("CHECK", c); e != nil {
				t.Errorf("CHECK of a pod that is not redirected: %v", e)
			}
		})
	}
}

// TestCHECKFailsIfTheStateIsUnknown checks that CHECK fails if it cannot determine whether the pod
// is redirected as it should be.
func TestCHECKFailsIfTheStateIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(env *testEnv, c *sandboxCall)
		code   uint
	}{
		{"the namespace does not exist", func(_ *testEnv, c *sandboxCall) {
			c.netns = "/run/netns/gone"
		}, types.ErrInvalidNetNS},
		{
			"the pod cannot be read", func(env *testEnv, _ *sandboxCall) {
				env.source.err = errors.New("no answer")
			},
			types.ErrTryAgainLater,
		},
		{
			"the result is invalid", func(_ *testEnv, c *sandboxCall) {
				c.prevResult = "7"
				c.stdin = c.configuration()
			},
			types.ErrInvalidNetworkConfig,
		},
		{"the configuration is invalid", func(_ *testEnv, c *sandboxCall) {
			c.stdin = c.configuration(`"backend":"x"`)
		}, types.ErrInvalidNetworkConfig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			tc.change(env, &c)
			if e := env.call("CHECK", c); e == nil || e.Code != tc.code {
				t.Errorf("CHECK: %+v, want code %d", e, tc.code)
			}
		})
	}
}

// TestDELKeepsTheHostsNamespace checks that DEL does not change the host's namespace, unless the
// caller sets the override.
func TestDELKeepsTheHostsNamespace(t *testing.T) {
	for override, want := range map[string]bool{"": false, "0": false, "1": true, "True": true} {
		env := newTestEnv(t, "")
		c := newCall(t, nil)
		c.netns, c.override = "/proc/self/ns/net", override
		requested := false
		env.Backend = func(compat.BackendName) (compat.Backend, error) {
			requested = true
			return idleBackend{}, nil
		}
		if e := env.call("DEL", c); e != nil || requested != want {
			t.Errorf("override %q: %v, backend requested: %t, want %t", override, e, requested,
				want)
		}
	}
}

func TestADDFailsIfItsResultCannotBeWritten(t *testing.T) {
	env := newTestEnv(t, "plain")
	env.Stdout = failingWriter{}
	if e := env.call("ADD", newCall(t, nil)); e == nil || e.Code != types.ErrIOFailure {
		t.Errorf("ADD: %+v, want code %d", e, types.ErrIOFailure)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
