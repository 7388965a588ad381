package chaintest_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// referencePlugins contains the other plugins of the chain; "make bin/cni/bridge" builds them.
var referencePlugins = []string{"bridge", "ptp", "host-local", "portmap"}

// outsideIPs contains an address of each family outside the pods' network. The node has these
// addresses, and its server on them is named outside.
var outsideIPs = []string{"10.9.9.9", "fd00:9::9"}

// A node is the namespace of a host, with the directories of its container runtime and its API
// server. The plugins change the network only in this namespace and in the namespaces of the pods.
type node struct {
	ns  *netns.NS
	api *apiservertest.Server
	cni *libcni.CNIConfig
	// exec executes the plugins for cni.
	exec *timedExec
	// bin contains the executables, run is the run directory of sluice-cni, and state contains the
	// files of libcni and the other plugins, and links to the pods' namespaces.
	bin, run, state string
	// unknownPods is set if unreadablePod must not add the pod to the API server.
	unknownPods bool
}

// newNode returns a node whose API server has no pods.
func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{ns: netnstest.New(t), bin: t.TempDir(), run: t.TempDir(), state: t.TempDir()}
	linkExecutables(t, n.bin)
	n.exec = &timedExec{
		Exec:      &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: t.Output()}},
		durations: map[string][]time.Duration{},
	}
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{n.bin}, filepath.Join(n.state, "cache"),
		n.exec)
	n.in(t, func() error {
		// Make the IPv6 address of the bridge usable immediately, instead of after a second of
		// duplicate address detection.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"),
			0o644); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, ip := range outsideIPs {
			address := net.ParseIP(ip)
			bits := 8 * net.IPv6len
			if four := address.To4(); four != nil {
				address, bits = four, 8*net.IPv4len
			}
			err = errors.Join(err, netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{
				IP: address, Mask: net.CIDRMask(bits, bits),
			}}))
		}
		return err
	})
	n.serve(t, n.ns, outside, ":80")
	n.in(t, func() error {
		n.api = apiservertest.Start(t)
		return nil
	})
	n.api.WriteKubeconfig(n.kubeconfig(), func(_, _ map[string]any) {})
	return n
}

// kubeconfig returns the path of the plugin's kubeconfig.
func (n *node) kubeconfig() string { return filepath.Join(n.run, "sluice-cni-kubeconfig") }

// in runs fn in the node's namespace. Processes that fn starts run in this namespace too.
func (n *node) in(t testing.TB, fn func() error) {
	t.Helper()
	if err := n.ns.Do(fn); err != nil {
		t.Fatal(err)
	}
}

// linkExecutables creates links to the plugins in a directory. sluice-cni is this test's
// executable, unless SLUICE_CNI names another one.
func linkExecutables(t testing.TB, dir string) {
	t.Helper()
	executable := os.Getenv("SLUICE_CNI")
	if executable == "" {
		var err error
		if executable, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{pluginName: executable}
	for _, name := range referencePlugins {
		path, err := filepath.Abs(filepath.Join("..", "..", "bin", "cni", name))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			skipOrFail(t, fmt.Sprintf("%v: \"make bin/cni/bridge\" builds the reference plugins", err))
		}
		links[name] = path
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// skipOrFail skips the test because of a missing prerequisite, or fails it if tests must not be
// skipped.
func skipOrFail(t testing.TB, description string) {
	t.Helper()
	if netnstest.MustNotSkip() {
		t.Fatal(description)
	}
	t.Skip(description)
}
