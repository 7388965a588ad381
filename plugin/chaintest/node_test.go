package chaintest_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/source/sourcetest"
)

// referencePlugins are those of the chain that are not ours; "make bin/cni/bridge" builds them.
var referencePlugins = []string{"bridge", "ptp", "host-local", "portmap"}

// outsideIP is an address beyond the pods' network. The node has it, and a server on it answers as [outside].
const outsideIP = "10.9.9.9"

// A node is the namespace of a host, with the folders of its container runtime and its API server. What the plugins change of a
// host's network they change there.
type node struct {
	ns  *netns.NS
	api *sourcetest.Server
	cni *libcni.CNIConfig
	// bin has the executables, run is the run directory of our plugin, and state is the other plugins'.
	bin, run, state string
	// unknownPods are those that the API server does not have.
	unknownPods bool
}

// newNode returns a node whose API server knows no pods yet.
func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{ns: netnstest.New(t), bin: t.TempDir(), run: t.TempDir(), state: t.TempDir()}
	linkExecutables(t, n.bin)
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{n.bin}, filepath.Join(n.state, "cache"), &invoke.DefaultExec{
		RawExec: &invoke.RawExec{Stderr: t.Output()},
	})
	n.in(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(outsideIP), Mask: net.CIDRMask(32, 32)}})
	})
	n.serve(t, n.ns, outside, outsideIP+":80")
	n.in(t, func() error {
		n.api = sourcetest.Start(t)
		return nil
	})
	n.api.WriteKubeconfig(n.kubeconfig(), func(_, _ map[string]any) {})
	return n
}

// kubeconfig is the path where our plugin looks for the API server's address and its credentials.
func (n *node) kubeconfig() string { return filepath.Join(n.run, "sluice-cni-kubeconfig") }

// in runs fn in the node's namespace, where the processes that it starts belong to then.
func (n *node) in(t testing.TB, fn func() error) {
	t.Helper()
	if err := n.ns.Do(fn); err != nil {
		t.Fatal(err)
	}
}

// linkExecutables makes the folder of plugins. Ours is this test's executable, unless SLUICE_CNI names another one.
func linkExecutables(t testing.TB, dir string) {
	t.Helper()
	ours := os.Getenv("SLUICE_CNI")
	if ours == "" {
		var err error
		if ours, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{pluginName: ours}
	for _, name := range referencePlugins {
		path, err := filepath.Abs(filepath.Join("..", "..", "bin", "cni", name))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			absent(t, fmt.Sprintf("%v: \"make bin/cni/bridge\" builds the reference plugins", err))
		}
		links[name] = path
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// absent skips the test for what it lacks, or fails it where nothing may be left out.
func absent(t testing.TB, what string) {
	t.Helper()
	if netnstest.MustNotSkip() {
		t.Fatal(what)
	}
	t.Skip(what)
}
