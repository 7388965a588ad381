package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
)

const (
	uid   = "7d1e6c2a-4b0f-4a57-9f63-0123456789ab"
	slice = "kubepods-burstable-pod7d1e6c2a_4b0f_4a57_9f63_0123456789ab.slice"
	other = "00000000-0000-0000-0000-000000000000"
)

func TestPodOf(t *testing.T) {
	for _, row := range []struct{ name, cgroup, want string }{
		{"cgroupfs", "0::/kubepods/besteffort/pod" + uid + "/c\n", uid},
		{
			"systemd",
			"0::/kubepods.slice/kubepods-burstable.slice/" + slice + "/cri-containerd-c.scope\n",
			uid,
		},
		{
			"systemd, below other levels",
			"0::/a.slice/a-kubepods.slice/a-" + slice + "/crio-c.scope\n", uid,
		},
		{
			"a static pod, known by a hash",
			"0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/c\n",
			"0123456789abcdef0123456789abcdef",
		},
		{"another pod, seen from a cgroup namespace", "0::/../../pod" + uid + "/c\n", uid},
		{"a file without a line feed", "0::/kubepods/pod" + uid, uid},
		{
			"version 1, all hierarchies",
			"9:pids:/kubepods/pod" + uid + "/c\n8:cpu,cpuacct:/kubepods/pod" + uid + "/c\n0::/\n",
			uid,
		},
		{
			"version 1, some hierarchies",
			"9:name=systemd:/\n8:memory:/kubepods/pod" + uid + "/c\n", uid,
		},
		{
			"hierarchies with different pods",
			"9:pids:/kubepods/pod" + uid + "/c\n8:memory:/kubepods/pod" + other + "/c\n", "",
		},
		{
			"another pod's name below a pod",
			"0::/kubepods/pod" + uid + "/c/kubepods/pod" + other + "\n", uid,
		},
		{
			"another pod's slice below a pod", "0::/kubepods/pod" + other + "/c/" + slice + "\n",
			other,
		},
		{"no pod", "0::/system.slice/containerd.service\n", ""},
		{"the node's first process", "0::/init.scope\n", ""},
		{"a name with the prefix of a pod's", "0::/pods/podman/pod-" + uid + "\n", ""},
		{"a UID in upper case", "0::/kubepods/pod" + strings.ToUpper(uid) + "\n", ""},
		{"a UID with additional characters", "0::/kubepods/pod" + uid + "0\n", ""},
		{
			"a slice that is not the kubelet's",
			"0::/machine-pod7d1e6c2a_4b0f_4a57_9f63_0123456789ab.slice/c.scope\n", "",
		},
		{"an invalid line", "0:/kubepods/pod" + uid + "\n", ""},
		{"an empty file", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := podOf(row.cgroup); got != row.want {
				t.Errorf("pod %q, want %q", got, row.want)
			}
		})
	}
}

func TestMountedAndOlderNamespacesTakePrecedence(t *testing.T) {
	for _, row := range []struct {
		name        string
		first, then processNetns
	}{
		{
			"the older of two processes",
			processNetns{startTime: 1, pid: 9},
			processNetns{startTime: 2, pid: 8},
		},
		{
			"the lower number of two processes of the same tick",
			processNetns{startTime: 1, pid: 8},
			processNetns{startTime: 1, pid: 9},
		},
		{
			"a process in a namespace that the runtime created, of any age",
			processNetns{mounted: true, startTime: 2, pid: 9},
			processNetns{startTime: 1, pid: 8},
		},
		{
			"the older of two processes in namespaces that the runtime created",
			processNetns{mounted: true, startTime: 1},
			processNetns{mounted: true, startTime: 2},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if !row.first.precedes(row.then) || row.then.precedes(row.first) {
				t.Errorf("%+v does not take precedence over %+v", row.first, row.then)
			}
		})
	}
}

// TestAReusedProcessIDIsDetected checks that a process is refused if its cgroup does not name the
// pod: the process ID may have been reused since it was listed.
func TestAReusedProcessIDIsDetected(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "7", "ns"), 0o700),
		os.Symlink("/proc/thread-self/ns/net", filepath.Join(dir, "7", "ns", "net")),
		os.WriteFile(filepath.Join(dir, "7", "cgroup"), []byte("0::/kubepods/pod"+other+"\n"),
			0o600),
		os.WriteFile(filepath.Join(dir, "7", "stat"),
			[]byte("7 (cat) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711"+strings.Repeat(" 0", 30)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s := search{Finder: New(Options{ProcDir: dir})}
	none := func() map[netns.ID]string { return nil }
	if c, err := s.netnsOf(7, other, none); err != nil || c.startTime != 4711 {
		t.Errorf("process of the pod: %+v, error %v, want start time 4711", c, err)
	}
	if c, err := s.netnsOf(7, uid, none); err == nil || err.Error() != "it has ended" {
		t.Errorf("process of another pod: %+v, error %v, want the error \"it has ended\"", c, err)
	}
}

// FuzzProcess parses arbitrary cgroup files and paths of a process: a UID is valid and part of the
// file, and a path with a process ID is the path of this process.
func FuzzProcess(f *testing.F) {
	f.Add("0::/kubepods/pod"+uid+"/c\n", "/proc/7/ns/net")
	f.Add("3:a:/"+slice+"\n::", "/proc/-7/ns/net")
	f.Fuzz(func(t *testing.T, cgroup, path string) {
		if got := podOf(cgroup); got != "" && (!isUID(got) ||
			!strings.Contains(strings.ReplaceAll(cgroup, "_", "-"), got)) {
			t.Errorf("UID %q in %q, want a valid one from the text", got, cgroup)
		}
		if pid, ok := processOf(path); ok && procDir("/proc").netns(pid) != path {
			t.Errorf("process %d in path %q, want only the path of this process", pid, path)
		}
	})
}

// FuzzResult parses arbitrary files of a runtime's cache: a candidate is complete, and its local
// path is a file in the directory of network namespaces.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"kind":"cniCacheV1","containerId":"c","ifName":"eth0","netns":"/var/run/netns/x","cniArgs":[["K8S_POD_UID","u"]],` +
		`"result":{"interfaces":[{"name":"eth0","sandbox":"/x"}]}}`))
	f.Add([]byte(`{"kind":"cniCacheV1","cniArgs":[[]],"result":{"interfaces":[null,{}]}}`))
	f.Add([]byte(`[1e400]`))
	d := netnsDir{path: "/mounted", onNode: "/run/netns"}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseResult(text)
		if c.pod.UID != "" && (err != nil || c.path == "" || c.containerID == "") {
			t.Errorf("candidate %+v, error %v, want a complete candidate or none", c, err)
		}
		if path, ok := d.localPath(c.path); ok && (!strings.HasPrefix(path, "/mounted/") ||
			strings.Count(path, "/") != 2 || strings.HasSuffix(path, "/..")) {
			t.Errorf("path %q becomes %q, want a file in /mounted", c.path, path)
		}
	})
}
