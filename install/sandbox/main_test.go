package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A node has the directories that a finder reads.
type node struct {
	run, netns, cache string
	// proc contains the processes that a test adds, and the test itself as the node's first
	// process.
	proc string
	// now is the time of the latest record or cached result.
	now time.Time
}

func newNode(t testing.TB) *node {
	t.Helper()
	netnstest.RequireRoot(t)
	n := &node{run: t.TempDir(), netns: t.TempDir(), cache: t.TempDir(), proc: t.TempDir()}
	n.now = time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	n.process(t, 1, os.Getpid())
	return n
}

// process adds the process pid to the node's /proc, where its process ID is pidOnNode.
func (n *node) process(t testing.TB, pidOnNode, pid int) {
	t.Helper()
	if err := os.Symlink(fmt.Sprintf("/proc/%d", pid),
		filepath.Join(n.proc, strconv.Itoa(pidOnNode))); err != nil {
		t.Fatal(err)
	}
}

// cgroupFile adds a process with only a cgroup file to the node's /proc.
func (n *node) cgroupFile(t testing.TB, pidOnNode int, text string) {
	t.Helper()
	dir := filepath.Join(n.proc, strconv.Itoa(pidOnNode))
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cgroup"), []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// finder returns a finder. Its directory of network namespaces has another path than on the node.
func (n *node) finder() *sandbox.Finder {
	return sandbox.New(sandbox.Options{
		RunDir: n.run,
		ResultDirs: []string{
			filepath.Join(n.cache, "results"), filepath.Join(n.cache, "cache", "results"),
		},
		HostNetnsDir: "/var/run/netns", NetnsDir: n.netns, ProcDir: n.proc,
	})
}

var number atomic.Int64

// newPod returns a pod with a new UID.
func newPod() sandbox.Pod {
	i := number.Add(1)
	return sandbox.Pod{
		Namespace: "shop", Name: fmt.Sprintf("orders-%d", i),
		UID: fmt.Sprintf("7d1e6c2a-4b0f-4a57-9f63-%012x", i),
	}
}

// link adds a namespace to the directory, and returns its path on the node. It uses a link instead
// of a mount, which a killed test would leave behind.
func (n *node) link(t testing.TB, ns *netns.NS, name string) string {
	t.Helper()
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()),
		filepath.Join(n.netns, name)); err != nil {
		t.Fatal(err)
	}
	return "/var/run/netns/" + name
}

// mount is like link, but mounts the namespace as runtimes do. The mount exists only in a new mount
// namespace, which the calling thread enters. Do not reuse the thread.
func (n *node) mount(t testing.TB, ns *netns.NS, name string) error {
	t.Helper()
	path := filepath.Join(n.netns, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return errors.Join(unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.FD()), path, "", unix.MS_BIND, ""))
}

// onThread runs prepare and then fn on a thread that is not reused.
func onThread(t *testing.T, prepare func() error, fn func()) {
	t.Helper()
	err := netnstest.OnNewThread(func() error {
		if err := prepare(); err != nil {
			return err
		}
		fn()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unlink removes a namespace from the directory.
func (n *node) unlink(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(filepath.Join(n.netns, filepath.Base(path))); err != nil {
		t.Fatal(err)
	}
}

// record stores a record as ADD does. Its time is a second after the time of the previous record.
func (n *node) record(t testing.TB, p sandbox.Pod, id, path string) record.Key {
	t.Helper()
	n.now = n.now.Add(time.Second)
	k := record.Key{ContainerID: id, IfName: "eth0"}
	pod := record.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	if err := record.In(n.run).Put(record.Record{
		Key: k, Netns: path, Pod: pod, Outcome: "skip", Time: n.now,
	}); err != nil {
		t.Fatal(err)
	}
	return k
}

// result caches a result with libcni, as a runtime does, and returns the path of the file.
func (n *node) result(t testing.TB, p sandbox.Pod, id, path string) string {
	t.Helper()
	n.now = n.now.Add(time.Second)
	list, err := libcni.NetworkConfFromBytes(
		[]byte(`{"cniVersion":"1.0.0","name":"e2e","plugins":[{"type":"first"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = libcni.NewCNIConfigWithCacheDir([]string{"/"}, n.cache,
		plugins(path)).AddNetworkList(t.Context(), list, &libcni.RuntimeConf{
		ContainerID: id, NetNS: path, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.Namespace},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", id},
			{"K8S_POD_UID", p.UID},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.cache, "results", "e2e-"+id+"-eth0")
	if err := os.Chtimes(file, n.now, n.now); err != nil {
		t.Fatal(err)
	}
	return file
}

// find searches for one pod, and returns its sandbox, or the reason why it is missing.
func find(t testing.TB, f *sandbox.Finder, p sandbox.Pod) (s sandbox.Sandbox, reason string) {
	t.Helper()
	found, missing := f.Find(t.Context(), []sandbox.Pod{p})
	if len(found)+len(missing) != 1 {
		t.Fatalf("found %v, missing %v; want the pod in one of them", found, missing)
	}
	if len(missing) == 1 {
		return sandbox.Sandbox{}, missing[p].Err.Error()
	}
	return found[p], ""
}

// wantFound checks that the pod's sandbox is the namespace, and that it is found in the source.
func wantFound(
	t testing.TB, f *sandbox.Finder, p sandbox.Pod, ns *netns.NS, source sandbox.Source,
) sandbox.Sandbox {
	t.Helper()
	s, reason := find(t, f, p)
	if s.ID != ns.ID() || s.Source != source || s.Pod != p {
		t.Errorf("found %+v, reason %q; want %s of pod %s in source %s", s, reason, ns.ID(), p, source)
		return s
	}
	opened, err := s.Open()
	if err != nil {
		t.Error(err)
		return s
	}
	defer opened.Close()
	if opened.ID() != ns.ID() {
		t.Errorf("opened %s, want %s", opened.ID(), ns.ID())
	}
	return s
}

// wantMissing checks that the pod has no sandbox, for a reason that contains each of the texts.
func wantMissing(t testing.TB, f *sandbox.Finder, p sandbox.Pod, texts ...string) {
	t.Helper()
	s, reason := find(t, f, p)
	if reason == "" {
		t.Errorf("found %+v, want no sandbox of pod %s", s, p)
	}
	for _, text := range texts {
		if !strings.Contains(reason, text) {
			t.Errorf("missing because of %q, want a reason with %q", reason, text)
		}
	}
}
