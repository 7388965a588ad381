package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/record"
)

func TestRecordIsFound(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	f := n.finder()
	wantMissing(t, f, p, "the pod has no process")
	n.record(t, p, "c1", n.link(t, ns, "cni-1"))
	for range 2 {
		s := wantFound(t, f, p, ns, sandbox.Record)
		if s.ContainerID != "c1" || s.Path != filepath.Join(n.netns, "cni-1") {
			t.Errorf("found %+v, want container c1 at the finder's path of cni-1", s)
		}
	}
}

func TestPathsOfTheNode(t *testing.T) {
	ns := netnstest.New(t)
	for _, row := range []struct {
		name, path string
		found      bool
	}{
		{"a file in the configured directory", "/var/run/netns/cni-1", true},
		{"a file in the target of /var/run", "/run/netns/cni-1", true},
		{"a path that is not in its simplest form", "/var/run//netns/./cni-1", true},
		{"a file in a subdirectory", "/var/run/netns/x/cni-1", false},
		{"a file outside of the directory", "/var/run/netns/../cni-1", false},
		{"the directory itself", "/var/run/netns/", false},
		{"a file in another directory", "/var/run/netnsx/cni-1", false},
		{"the file of a process that is not the pod's", "/proc/1/ns/net", false},
		{"no path", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, p := newNode(t), newPod()
			n.link(t, ns, "cni-1")
			n.record(t, p, "c1", row.path)
			if row.found {
				wantFound(t, n.finder(), p, ns, sandbox.Record)
			} else {
				wantMissing(t, n.finder(), p, "record: sandbox c1: ")
			}
		})
	}
}

// TestUnusablePathsAreExplained checks that the error names the reason why a path is unusable.
func TestUnusablePathsAreExplained(t *testing.T) {
	n, outside, process := newNode(t), newPod(), newPod()
	n.record(t, outside, "c1", "/var/run/cni-1")
	n.record(t, process, "c2", "/proc/1/ns/net")
	wantMissing(t, n.finder(), outside, "/run/cni-1 is neither in the directory of network "+
		"namespaces nor the file /proc/PID/ns/net of a process")
	wantMissing(t, n.finder(), process, "/proc/1/ns/net does not belong to a process of the pod")
	n.proc = ""
	wantMissing(t, n.finder(), process, "/proc/1/ns/net is in /proc, which is not searched")
}

func TestRuntimeCacheIsRead(t *testing.T) {
	for _, row := range []struct {
		name   string
		edit   func(map[string]any)
		reason string
	}{
		{"a result as libcni writes it", func(map[string]any) {}, ""},
		{"a result of an earlier libcni, with the path only in the interfaces", func(m map[string]any) {
			delete(m, "netns")
		}, ""},
		{"a result without a path", func(m map[string]any) {
			delete(m, "netns")
			delete(m, "result")
		}, "no process"},
		{"a file of another kind", func(m map[string]any) { m["kind"] = "other" }, "no process"},
		{"a result of the loopback network, which containerd adds first", func(m map[string]any) {
			m["ifName"] = "lo"
		}, "no process"},
		{"a result without a container", func(m map[string]any) { delete(m, "containerId") }, "no process"},
		{"a result without arguments", func(m map[string]any) { delete(m, "cniArgs") }, "no process"},
		{"a result with a field of another type", func(m map[string]any) { m["cniArgs"] = 7 }, "no process"},
		{"a result with two UIDs", func(m map[string]any) {
			m["cniArgs"] = append([]any{[]any{"K8S_POD_UID", "x"}}, m["cniArgs"].([]any)...)
		}, `two values of "K8S_POD_UID"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, p, ns := newNode(t), newPod(), netnstest.New(t)
			file := n.result(t, p, "c1", n.link(t, ns, "cni-1"))
			editResult(t, file, row.edit)
			if row.reason != "" {
				wantMissing(t, n.finder(), p, row.reason)
			} else if s := wantFound(t, n.finder(), p, ns, sandbox.Runtime); s.ContainerID != "c1" {
				t.Errorf("found %+v, want container c1", s)
			}
		})
	}
}

// editResult calls change with the decoded file, and writes the result to the file.
func editResult(t *testing.T, file string, change func(map[string]any)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	change(m)
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAResultIsReadAgainWhenItHasChanged checks that a file that was read while the runtime wrote
// it is read again.
func TestAResultIsReadAgainWhenItHasChanged(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	f := n.finder()
	file := n.result(t, p, "c1", n.link(t, ns, "cni-1"))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Write in the same tick of the file system's clock.
	if err := errors.Join(os.WriteFile(file, text[:len(text)/2], 0o600),
		os.Chtimes(file, n.now, n.now)); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, f, p, file, "unexpected end")
	if err := errors.Join(os.WriteFile(file, text, 0o600),
		os.Chtimes(file, n.now, n.now)); err != nil {
		t.Fatal(err)
	}
	wantFound(t, f, p, ns, sandbox.Runtime)
}

// TestARecordIsReadAgainWhenItIsReplaced covers an ADD for a later sandbox with the container ID of
// an earlier one.
func TestARecordIsReadAgainWhenItIsReplaced(t *testing.T) {
	n, p, first, second := newNode(t), newPod(), netnstest.New(t), netnstest.New(t)
	f := n.finder()
	path := n.link(t, first, "cni-1")
	n.record(t, p, "c1", path)
	wantFound(t, f, p, first, sandbox.Record)
	n.record(t, p, "c1", n.link(t, second, "cni-2"))
	wantFound(t, f, p, second, sandbox.Record)
	n.unlink(t, path)
	wantFound(t, f, p, second, sandbox.Record)
	q := newPod()
	n.record(t, q, "c1", "/var/run/netns/cni-2")
	wantFound(t, f, q, second, sandbox.Record)
	wantMissing(t, f, p, "the pod has no process")
}

func TestAHugeResultIsAnError(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	file := n.result(t, p, "c1", n.link(t, ns, "cni-1"))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, strings.Repeat(" ", 2<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, n.finder(), p, file+" has more than 2097152 bytes")
}

func TestSymbolicLinkIsNotAResult(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	file := n.result(t, p, "c1", n.link(t, ns, "cni-1"))
	elsewhere := filepath.Join(t.TempDir(), "result")
	if err := errors.Join(os.Rename(file, elsewhere), os.Symlink(elsewhere, file)); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, n.finder(), p, file)
}

func TestOnlyTheSamePodIsFound(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	f := n.finder()
	n.record(t, p, "c1", n.link(t, ns, "cni-1"))
	for name, change := range map[string]func(*sandbox.Pod){
		"another pod with the same name": func(p *sandbox.Pod) { p.UID = newPod().UID },
		"the beginning of the UID":       func(p *sandbox.Pod) { p.UID = p.UID[:35] },
		"no UID":                         func(p *sandbox.Pod) { p.UID = "" },
		"another name":                   func(p *sandbox.Pod) { p.Name = "other" },
		"another namespace":              func(p *sandbox.Pod) { p.Namespace = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			other := p
			change(&other)
			wantMissing(t, f, other)
			wantFound(t, f, p, ns, sandbox.Record)
			wantMissing(t, f, other)
		})
	}
}

func TestNextSourceIsSearchedIfASandboxIsGone(t *testing.T) {
	n, p, old, ns := newNode(t), newPod(), netnstest.New(t), netnstest.New(t)
	f := n.finder()
	path := n.link(t, old, "cni-1")
	n.record(t, p, "c1", path)
	wantFound(t, f, p, old, sandbox.Record)
	n.unlink(t, path)
	wantMissing(t, f, p, "record: sandbox c1: ", "no such file")
	n.result(t, p, "c2", n.link(t, ns, "cni-2"))
	s := wantFound(t, f, p, ns, sandbox.Runtime)
	if _, err := s.Open(); err != nil {
		t.Error(err)
	}
	n.unlink(t, "cni-2")
	if _, err := s.Open(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: error %v, want fs.ErrNotExist", err)
	}
}

func TestOfTwoSandboxesTheNewerOneIsFound(t *testing.T) {
	for _, source := range []sandbox.Source{sandbox.Record, sandbox.Runtime} {
		t.Run(string(source), func(t *testing.T) {
			n, p, old, ns := newNode(t), newPod(), netnstest.New(t), netnstest.New(t)
			store := func(id, path string) {
				if source == sandbox.Record {
					n.record(t, p, id, path)
				} else {
					n.result(t, p, id, path)
				}
			}
			store("c9", n.link(t, old, "cni-old"))
			wantFound(t, n.finder(), p, old, source)
			path := n.link(t, ns, "cni-new")
			store("c1", path)
			wantFound(t, n.finder(), p, ns, source)
			n.unlink(t, path)
			wantFound(t, n.finder(), p, old, source)
		})
	}
}

func TestCachedSandboxIsReplacedByTheNextOneOfThePod(t *testing.T) {
	n, p, old, ns := newNode(t), newPod(), netnstest.New(t), netnstest.New(t)
	f := n.finder()
	n.record(t, p, "c1", n.link(t, old, "cni-old"))
	wantFound(t, f, p, old, sandbox.Record)
	n.record(t, p, "c2", n.link(t, ns, "cni-new"))
	wantFound(t, f, p, ns, sandbox.Record)
}

func TestCachedSandboxIsVerified(t *testing.T) {
	n, p, old, ns := newNode(t), newPod(), netnstest.New(t), netnstest.New(t)
	f := n.finder()
	path := n.link(t, old, "cni-1")
	k := n.record(t, p, "c1", path)
	s := wantFound(t, f, p, old, sandbox.Record)
	n.unlink(t, path)
	n.link(t, ns, "cni-1")
	wantFound(t, f, p, ns, sandbox.Record)
	if opened, err := s.Open(); err == nil ||
		!strings.Contains(err.Error(), ", not "+old.ID().String()) {
		t.Errorf("Open: %v, error %v, want the error of another namespace", opened, err)
	}
	if err := record.In(n.run).Remove(k); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, f, p)
}

func TestPathOfTwoPodsBelongsToTheLaterOne(t *testing.T) {
	n, old, p, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	path := n.link(t, ns, "cni-1")
	n.record(t, old, "c2", path)
	n.record(t, p, "c1", path)
	f := n.finder()
	wantMissing(t, f, old, "/run/netns/cni-1 belongs to pod "+p.String()+" with UID "+p.UID)
	wantFound(t, f, p, ns, sandbox.Record)
}

// TestHostNamespaceBelongsToNoPod checks that neither the node's network namespace nor the finder's
// is a sandbox. The finder has its own network namespace, like an agent's pod.
func TestHostNamespaceBelongsToNoPod(t *testing.T) {
	n, own := newNode(t), netnstest.New(t)
	host, err := netns.OpenPID(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	f := n.finder()
	for name, ns := range map[string]*netns.NS{"host": host, "own": own} {
		t.Run(name, func(t *testing.T) {
			recorded, cached := newPod(), newPod()
			path := n.link(t, ns, name)
			n.record(t, recorded, "r-"+name, path)
			n.result(t, cached, "c-"+name, path)
			err := own.Do(func() error {
				wantMissing(t, f, recorded, "record: ",
					"the namespace of the node or of this process")
				wantMissing(t, f, cached, "runtime: ",
					"the namespace of the node or of this process")
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBrokenFilesAreReported checks that invalid files are reported, and do not hide the valid
// files.
func TestBrokenFilesAreReported(t *testing.T) {
	n, p, q, ns, other := newNode(t), newPod(), newPod(), netnstest.New(t), netnstest.New(t)
	n.record(t, p, "c1", n.link(t, ns, "cni-1"))
	n.result(t, q, "c2", n.link(t, other, "cni-2"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(n.cache, "results")
	must(os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	must(os.Symlink("/dev/zero", filepath.Join(dir, "link")))
	must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(os.WriteFile(filepath.Join(dir, "huge"), nil, 0o600))
	must(os.Truncate(filepath.Join(dir, "huge"), 1<<30))
	must(os.WriteFile(filepath.Join(dir, "garbage"), []byte("\x00{"), 0o600))
	must(os.WriteFile(filepath.Join(n.run, "attachments", "x:eth0.json"), []byte("{"), 0o600))
	f := n.finder()
	wantMissing(t, f, newPod(), "record: ", "x:eth0.json", "runtime: 5 files cannot be read")
	wantFound(t, f, p, ns, sandbox.Record)
	wantFound(t, f, q, other, sandbox.Runtime)
}

// TestARealMountIsFound mounts a namespace as a runtime does, and checks that it is found. After
// the unmount, the remaining file is not taken for a namespace.
func TestARealMountIsFound(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	n.record(t, p, "c1", "/var/run/netns/cni-1")
	f := n.finder()
	onThread(t, func() error { return n.mount(t, ns, "cni-1") }, func() {
		s := wantFound(t, f, p, ns, sandbox.Record)
		if err := unix.Unmount(s.Path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		wantMissing(t, f, p, "not a namespace file")
	})
}

func TestUnsetDirectories(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	n.link(t, ns, "cni-1")
	n.record(t, p, "c1", filepath.Join(n.netns, "cni-1"))
	wantFound(t, sandbox.New(sandbox.Options{RunDir: n.run, HostNetnsDir: n.netns}), p, ns,
		sandbox.Record)
	other := newPod()
	n.record(t, other, "c2", "/var/run/netns/sluice-no-such-name")
	wantMissing(t, sandbox.New(sandbox.Options{RunDir: n.run}), other,
		"/var/run/netns/sluice-no-such-name: open: no such file")
	wantMissing(t, sandbox.New(sandbox.Options{}), other,
		"neither a record nor the runtime's cache contains the pod")
}

func TestADirectoryThatCannotBeReadIsReported(t *testing.T) {
	n, p := newNode(t), newPod()
	for _, name := range []string{
		filepath.Join(n.run, "attachments"), filepath.Join(n.cache, "results"),
	} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantMissing(t, n.finder(), p, "record: ", "runtime: ", "attachments: not a directory",
		"results: not a directory")
}

// TestEndedPodsAreRemoved checks that sandboxes and records of ended pods leave the cache.
func TestEndedPodsAreRemoved(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	n.record(t, p, "c1", n.link(t, ns, "cni-1"))
	f := n.finder()
	for i := range 300 {
		path := n.link(t, ns, fmt.Sprintf("cni-x%d", i))
		other := newPod()
		k := n.record(t, other, fmt.Sprintf("x%d", i), path)
		wantFound(t, f, other, ns, sandbox.Record)
		n.unlink(t, path)
		if err := record.In(n.run).Remove(k); err != nil {
			t.Fatal(err)
		}
	}
	if sandboxes, records := sandbox.CacheSizes(f); sandboxes > 128 || records > 2 {
		t.Errorf("%d sandboxes and %d records in the cache, want at most 128 and 2", sandboxes, records)
	}
	wantFound(t, f, p, ns, sandbox.Record)
}

func TestFindEndsWithItsContext(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	n.result(t, p, "c1", n.link(t, ns, "cni-1"))
	f := n.finder()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found, missing := f.Find(ctx, []sandbox.Pod{p})
	if len(found) != 0 || len(missing) != 1 || !errors.Is(missing[p].Err, context.Canceled) {
		t.Errorf("found %v, missing %v, want the pod missing because of the context", found, missing)
	}
	wantFound(t, f, p, ns, sandbox.Runtime)
}

// TestAnInterruptedSearchUsesNoResult covers a search whose context ends after the first of two
// results. It does not use the first result: the second one shows that the sandbox belongs to
// another pod.
func TestAnInterruptedSearchUsesNoResult(t *testing.T) {
	n, old, p, ns := newNode(t), newPod(), newPod(), netnstest.New(t)
	path := n.link(t, ns, "cni-1")
	n.result(t, old, "c1", path)
	f := n.finder()
	n.cache = filepath.Join(n.cache, "cache") // the finder reads this cache last
	n.result(t, p, "c2", path)
	found, missing := f.Find(&endingContext{Context: t.Context(), remaining: 1}, []sandbox.Pod{old})
	if len(found) != 0 || len(missing) != 1 || !errors.Is(missing[old].Err, context.Canceled) {
		t.Errorf("found %v, missing %v, want the pod missing because of the context", found, missing)
	}
	wantMissing(t, f, old, "/run/netns/cni-1 belongs to pod "+p.String())
	wantFound(t, f, p, ns, sandbox.Runtime)
}

// An endingContext is canceled after a number of calls of Err.
type endingContext struct {
	context.Context //nolint:containedctx // the type is a context
	remaining       int
}

func (c *endingContext) Err() error {
	if c.remaining--; c.remaining < 0 {
		return context.Canceled
	}
	return nil
}

func TestFindLeavesNoDescriptorOpen(t *testing.T) {
	n, p, ns := newNode(t), newPod(), netnstest.New(t)
	n.record(t, p, "c1", n.link(t, ns, "cni-1"))
	wantFound(t, n.finder(), p, ns, sandbox.Record)
	before := netnstest.Descriptors(t)
	for range 20 {
		wantFound(t, n.finder(), p, ns, sandbox.Record)
		wantMissing(t, n.finder(), newPod())
	}
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d open descriptors before, %d after, want no more than before", before, after)
	}
}

// TestSandboxCreationTime checks the creation time of a mounted namespace, which is the change time
// of its file, and of the namespace of a process, which is the start time of the process. The
// clocks of both times have ticks of at most 10 ms.
func TestSandboxCreationTime(t *testing.T) {
	const tolerance = time.Second // two ticks, and the time between two readings of the clocks
	n, p, q := newNode(t), newPod(), newPod()
	before := time.Now().Add(-tolerance)
	mounted, running := netnstest.New(t), netnstest.New(t)
	n.record(t, p, "c1", n.link(t, mounted, "cni-1"))
	n.start(t, running, cgroup(t, anyHierarchy(t), group(q)))
	f := n.finder()
	for _, s := range []sandbox.Sandbox{
		wantFound(t, f, p, mounted, sandbox.Record), wantFound(t, f, q, running, sandbox.Proc),
		wantFound(t, f, p, mounted, sandbox.Record),
	} {
		if s.Created.Before(before) || s.Created.After(time.Now().Add(tolerance)) {
			t.Errorf("%s: created at %s, want between %s and now", s.Source, s.Created, before)
		}
	}
}

// TestEndedSandbox checks that Ended is set only for a pod with records, and only if each record's
// namespace has ended or its path belongs to another pod.
func TestEndedSandbox(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(n *node, p sandbox.Pod)
		want    bool
		reason  string // part of the reason
	}{
		{"without a record", func(*node, sandbox.Pod) {}, false, ""},
		{"the namespace has ended", func(n *node, p sandbox.Pod) {
			n.record(t, p, "c1", "/var/run/netns/gone")
		}, true, ""},
		{"the path belongs to another pod now", func(n *node, p sandbox.Pod) {
			path := n.link(t, netnstest.New(t), "cni-1")
			n.record(t, p, "c1", path)
			p.Name, p.UID = "another", "3b8d5f0e-9a51-4c79-8f5c-2f1f4b1d0c77"
			n.record(t, p, "c2", path)
		}, true, ""},
		{"the namespace cannot be reached", func(n *node, p sandbox.Pod) {
			n.record(t, p, "c1", "/somewhere/else")
		}, false, ""},
		{"the process has ended", func(n *node, p sandbox.Pod) {
			n.record(t, p, "c1", "/proc/7/ns/net")
		}, true, ""},
		{"the process belongs to no pod", func(n *node, p sandbox.Pod) {
			n.cgroupFile(t, 7, "0::/system.slice\n")
			n.record(t, p, "c1", "/proc/7/ns/net")
		}, true, ""},
		{"the cgroup of the process cannot be read", func(n *node, p sandbox.Pod) {
			if err := os.MkdirAll(filepath.Join(n.proc, "7/cgroup"), 0o700); err != nil {
				t.Fatal(err)
			}
			n.record(t, p, "c1", "/proc/7/ns/net")
		}, false, "the pod of a process is unknown: read"},
		{"the cgroup of the process is too long", func(n *node, p sandbox.Pod) {
			n.cgroupFile(t, 7, "0::/"+strings.Repeat("a", 16<<10))
			n.record(t, p, "c1", "/proc/7/ns/net")
		}, false, "whether /proc/7/ns/net belongs to a process of the pod: "},
		{"one of two namespaces cannot be reached", func(n *node, p sandbox.Pod) {
			n.record(t, p, "c1", "/somewhere/else")
			n.record(t, p, "c2", "/var/run/netns/gone")
		}, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, p := newNode(t), newPod()
			row.prepare(n, p)
			_, missing := n.finder().Find(t.Context(), []sandbox.Pod{p})
			if len(missing) != 1 || missing[p].Ended != row.want {
				t.Errorf("missing %+v, want one pod with Ended %v", missing, row.want)
			}
			if reason := missing[p].Err.Error(); !strings.Contains(reason, row.reason) {
				t.Errorf("missing because of %q, want a reason with %q", reason, row.reason)
			}
		})
	}
}

// TestUnprovenUIDNeedsTheName covers a pod whose UID may belong to another pod. Records and the
// runtime's cache must contain the pod's name, and the namespace of a process must have the pod's
// address.
func TestUnprovenUIDNeedsTheName(t *testing.T) {
	for _, source := range []sandbox.Source{sandbox.Record, sandbox.Runtime, sandbox.Proc} {
		t.Run(string(source), func(t *testing.T) {
			n, p, ns := newNode(t), newPod(), netnstest.NewPod(t)
			switch source {
			case sandbox.Record:
				n.record(t, p, "c1", n.link(t, ns, "cni-1"))
			case sandbox.Runtime:
				n.result(t, p, "c1", n.link(t, ns, "cni-1"))
			default:
				n.start(t, ns, cgroup(t, anyHierarchy(t), group(p)))
			}
			f := n.finder()
			wantFound(t, f, p, ns, source)
			unproven := p
			unproven.Unproven = true
			if source == sandbox.Proc {
				wantMissing(t, f, unproven,
					"proc: the UID may belong to another pod, and the pod's status has no address")
				unproven.Address = netip.MustParseAddr("192.0.2.9")
				wantMissing(t, f, unproven, "proc: the processes' network namespace does not have the address in "+
					"the pod's status (192.0.2.9)")
				addresses, err := route.Addresses(ns)
				if err != nil || len(addresses) == 0 {
					t.Fatalf("addresses %v, error %v, want some", addresses, err)
				}
				unproven.Address = addresses[0]
			}
			wantFound(t, f, unproven, ns, source)
			unproven.Name, unproven.Address = "another", netip.Addr{}
			wantMissing(t, f, unproven)
			wantFound(t, f, p, ns, source)
			found, missing := n.finder().Find(t.Context(), []sandbox.Pod{unproven, p})
			if len(found) != 1 || found[p].ID != ns.ID() || missing[unproven].Err == nil {
				t.Errorf("both pods in one search: found %v, missing %v; want only %s found", found,
					missing, p)
			}
		})
	}
}
