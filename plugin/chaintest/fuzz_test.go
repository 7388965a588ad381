package chaintest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// hostileValues are values that an attacker could write into a pod.
var hostileValues = []string{
	"", "*", "80,443", "10.0.0.0/8", "::/0", "eth0", "TPROXY", "true", "65536", "-1", "\x00",
	"a\nb", "\x1b[31m", "日本",
	"../../../../etc/cron.d/x", "/etc/passwd", "$(reboot)", "`id`", "; rm -rf /", "' OR 1=1 --",
	"%s%n", "{{.}}", "-m owner",
	`{"containers":["istio-proxy"]}`, `"}, "level":"info"`, "lo; flush ruleset", `" drop comment "`,
	`";drop;"`, "eth0;reboot,k6t-*",
	"lxc\u00e9", strings.Repeat("8,", 5000), "80\xff\xfe", "\xc3\x28,443",
	strings.Repeat("x", 256<<10), separatePorts(40_000),
}

// separatePorts returns a list of n ports. No two neighbors in the list are adjacent numbers. The
// maximum size of a pod's annotations limits n.
func separatePorts(n int) string {
	var list []byte
	for i := range n {
		list = append(strconv.AppendInt(list, int64(1+2*i%65535), 10), ',')
	}
	return string(list[:len(list)-1])
}

// FuzzHostilePod calls ADD for a pod with arbitrary annotations, labels, names, arguments and
// variables. The only created files are the log, with lines of JSON, and the record of the
// attachment. Rules are installed only in the pod's namespace, and contain only words of Sluice and
// harmless interface names. An error is a short printable line.
func FuzzHostilePod(f *testing.F) {
	ns, allowed := netnstest.New(f), wordsOfRules(f)
	sidecar, err := json.Marshal(podObject(f, "sidecar"))
	if err != nil {
		f.Fatal(err)
	}
	keys := slices.Sorted(maps.Keys(asMap(asMap(podObject(f,
		"annotations")["metadata"])["annotations"])))
	type seed struct {
		key             uint8
		value, argument string
	}
	var seeds []seed
	for i, value := range hostileValues {
		f.Add(uint8(i), value, hostileValues[(i*7+3)%len(hostileValues)], hostileValues[(i*5+1)%len(hostileValues)])
	}
	for key := range keys { // each annotation accepts some of the values, so that rules are installed
		for i, value := range hostileValues {
			seeds = append(seeds, seed{uint8(key), value, hostileValues[(i+key)%len(hostileValues)]})
		}
	}
	for _, s := range rulestest.Sample(seeds, os.Getenv) {
		f.Add(s.key, s.value, s.argument, "")
	}
	f.Fuzz(func(t *testing.T, which uint8, value, argument, variable string) {
		pod := hostilePod(t, sidecar, keys[int(which)%len(keys)], value, argument, variable)
		run := t.TempDir()
		var stdout, stderr bytes.Buffer
		backend := &backendRecorder{}
		p := plugin.Plugin{
			Source: func(*config.Config) source.Source { return singlePodSource{pod} },
			Agent: func(*config.Config) plugin.Agent {
				return client.New(client.Options{Socket: "/nonexistent"})
			},
			Backend: func(compat.BackendName) (compat.Backend, error) { return backend, nil },
			Stdout:  &stdout, Stderr: &stderr, Now: time.Now,
		}
		stdin, err := json.Marshal(map[string]any{
			"cniVersion": latest, "name": "e2e", "type": pluginName, "cni_agent_run_dir": run,
			"prevResult": map[string]any{
				"cniVersion": latest, "ips": []map[string]any{{"address": "10.244.7.9/16"}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		args := &skel.CmdArgs{
			ContainerID: "c1", IfName: "eth0", Netns: fmt.Sprintf("/proc/self/fd/%d", ns.FD()),
			StdinData: stdin,
			Args:      "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=orders",
		}
		addErr := p.Add(args)

		want := []string{"sluice-cni.log"}
		if addErr == nil {
			want = []string{"attachments/c1:eth0.json", "sluice-cni.log"}
		}
		if diff := cmp.Diff(want, filesIn(t, run)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		if lines := strings.Split(strings.TrimSpace(stderr.String()), "\n"); len(lines) != 1 ||
			!json.Valid([]byte(lines[0])) {
			t.Errorf("the log is not one line of JSON: %q", &stderr)
		}
		if redirected := strings.Contains(stderr.String(),
			`"outcome":"created"`); redirected != (len(backend.rulesets) > 0) {
			t.Errorf("%d rulesets were installed, but the log is %q", len(backend.rulesets), &stderr)
		}
		for _, entered := range backend.entered {
			if entered != ns.ID() {
				t.Errorf("rules were installed in namespace %v instead of the pod's %v", entered, ns.ID())
			}
		}
		for _, rs := range backend.rulesets {
			checkWords(t, rs, allowed)
		}
		checkPrintable(t, addErr)
	})
}

// hostilePod returns the mesh pod with the given values in the annotation with the key, in a label,
// in its names, in the arguments of its init containers and in variables of its containers.
func hostilePod(t testing.TB, sidecar []byte, key, value, argument, variable string) *decide.Pod {
	t.Helper()
	var pod decide.Pod
	if err := json.Unmarshal(sidecar, &pod); err != nil {
		t.Fatal(err)
	}
	pod.Metadata.Annotations[key] = value
	pod.Metadata.Labels[argument] = variable
	pod.Metadata.Name, pod.Metadata.Namespace = value, argument
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Args = append(pod.Spec.InitContainers[i].Args, argument)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for _, name := range []string{
			"ISTIO_META_DNS_CAPTURE", "ISTIO_OUTBOUND_OWNER_GROUPS",
			"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
		} {
			c.Env = append(c.Env, decide.EnvVar{Name: name, Value: variable})
		}
	}
	return &pod
}

// checkPrintable fails the test unless the error, if not nil, fits into an event.
func checkPrintable(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var e *types.Error
	unprintable := func(c rune) bool { return !unicode.IsPrint(c) }
	if !errors.As(err, &e) || len(e.Msg) > 160 || len(e.Details) > 768 ||
		strings.ContainsFunc(e.Error(), unprintable) {
		t.Errorf("an error that does not fit into an event: %q", err)
	}
}

// filesIn returns the paths of all files below a directory.
func filesIn(t testing.TB, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			path, err = filepath.Rel(dir, path)
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// singlePodSource is a source that returns one pod for every request.
type singlePodSource struct{ pod *decide.Pod }

func (s singlePodSource) Pod(_ context.Context, _ source.Ref) (*decide.Pod, error) { return s.pod, nil }

func (s singlePodSource) Namespace(_ context.Context, name string) (*decide.Namespace, error) {
	return nil, fmt.Errorf("no namespace %s", name)
}
func (singlePodSource) Ready(context.Context) error { return nil }
func (singlePodSource) Close()                      {}

// TestNoDependencyOnOSExec checks that the executable cannot execute programs by package os/exec.
func TestNoDependencyOnOSExec(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "../cmd/sluice-cni")
	list.Stderr = io.Discard
	packages, err := list.Output()
	if err != nil {
		skipOrFail(t, fmt.Sprintf("go list: %v", err))
	}
	if slices.Contains(strings.Fields(string(packages)), "os/exec") {
		t.Error("sluice-cni depends on os/exec")
	}
}
