package bench_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/source/sourcetest"
)

// BenchmarkPeers compares the plugin with its peers and prints tables. "make bench-peers" builds all of them and runs it once.
func BenchmarkPeers(b *testing.B) {
	netnstest.RequireRoot(b)
	rounds := 30
	if text := os.Getenv("SLUICE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			b.Fatalf("SLUICE_ROUNDS=%q: want a number from 1 on", text)
		}
	}
	w := newWorld(b)
	for b.Loop() {
		fmt.Printf("\n%d rounds, medians; ratios are to the first line of each table\n", rounds)
		for _, row := range w.rows() {
			costs, err := bench.Measure(row, rounds)
			if err != nil {
				fmt.Printf("\n%v: left out\n", err)
				continue
			}
			bench.Print(os.Stdout, row, costs)
		}
		w.sizes(b)
	}
}

// A world is what all plugins find: a node, its API server, and the pods that this one knows.
type world struct {
	node            *netns.NS
	api             *sourcetest.Server
	mesh, plain     bench.Pod
	ours, oursOld   *bench.Plugin
	istio           []*bench.Plugin
	oursExe, theirs string
}

func newWorld(b *testing.B) *world {
	w := &world{node: netnstest.New(b), oursExe: program(b, "sluice-cni"), theirs: program(b, "istio-cni")}
	if err := w.node.Do(func() error {
		w.api = sourcetest.Start(b)
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	w.mesh, w.plain = w.pod(b, "sidecar"), w.pod(b, "not-injected")
	w.ours = w.plugin(b, "sluice-cni", w.oursExe, "sluice-cni-kubeconfig")
	w.oursOld = w.plugin(b, "sluice-cni, legacy tables", w.oursExe, "sluice-cni-kubeconfig")
	w.oursOld.Config["backend"] = "legacy"
	w.ours.Ours, w.oursOld.Ours = true, true
	found := w.plugin(b, "istio-cni, iptables that it finds", w.theirs, "istio-cni-kubeconfig")
	native := w.plugin(b, "istio-cni, native nftables", w.theirs, "istio-cni-kubeconfig")
	native.Config["native_nftables"] = true
	w.istio = []*bench.Plugin{found, native}
	if path, err := legacyOnly(b); err != nil {
		fmt.Printf("istio-cni, iptables-legacy: left out: %v\n", err)
	} else {
		legacy := w.plugin(b, "istio-cni, iptables-legacy", w.theirs, "istio-cni-kubeconfig")
		legacy.Env = []string{"PATH=" + path}
		w.istio = append([]*bench.Plugin{legacy}, w.istio...)
	}
	return w
}

// plugin returns one with a run directory of its own and credentials in it. It is in memory, as /var/run of a node is.
func (w *world) plugin(b *testing.B, name, path, kubeconfig string) *bench.Plugin {
	dir, err := os.MkdirTemp("/dev/shm", "bench-peers-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.api.WriteKubeconfig(filepath.Join(dir, kubeconfig), func(_, _ map[string]any) {})
	return &bench.Plugin{Name: name, Path: path, Node: w.node, Config: map[string]any{"cni_agent_run_dir": dir}}
}

// pod gives the API server a pod out of the plugin's examples.
func (w *world) pod(b *testing.B, name string) bench.Pod {
	text, err := os.ReadFile(filepath.Join("..", "..", "plugin", "decide", "testdata", name+".yaml"))
	if err != nil {
		b.Fatal(err)
	}
	w.api.Put(string(text))
	var object struct {
		Metadata struct {
			Namespace, Name, UID string
			Annotations          map[string]string
		}
	}
	if text, err = yaml.YAMLToJSON(text); err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		b.Fatal(err)
	}
	m := object.Metadata
	return bench.Pod{Namespace: m.Namespace, Name: m.Name, UID: m.UID, Annotations: m.Annotations}
}

// rows are the tasks. Istio's plugin does not ask the runtime for annotations, so that passing them to it changes nothing.
func (w *world) rows() []bench.Row {
	all := append([]*bench.Plugin{w.ours, w.oursOld}, w.istio...)
	some := append([]*bench.Plugin{w.ours}, w.istio...)
	contest := func(plugins []*bench.Plugin, enter func(*bench.Plugin) bench.Contestant) []bench.Contestant {
		var contestants []bench.Contestant
		for _, p := range plugins {
			contestants = append(contestants, enter(p))
		}
		return contestants
	}
	unannounced := w.plain
	unannounced.Annotations = nil
	fifth := bench.Goal{Quantity: bench.WallTime, AtMost: 1.0 / 5}
	third := bench.Goal{Quantity: bench.Memory, AtMost: 1.0 / 3}
	return []bench.Row{
		{
			Name: "ADD of a mesh pod", Goals: []bench.Goal{fifth, third},
			Contestants: contest(all, func(p *bench.Plugin) bench.Contestant { return p.Add(w.mesh, true) }),
		},
		{
			Name: "ADD of a pod that is left alone; the runtime passes annotations", Goals: []bench.Goal{fifth},
			Contestants: contest(some, func(p *bench.Plugin) bench.Contestant { return p.Add(w.plain, false) }),
		},
		{
			Name: "ADD of a pod that is left alone; the API server is asked", Goals: []bench.Goal{fifth},
			Contestants: contest(some, func(p *bench.Plugin) bench.Contestant { return p.Add(unannounced, false) }),
		},
		{
			Name: "DEL of a mesh pod", Goals: []bench.Goal{fifth},
			Contestants: contest(all, func(p *bench.Plugin) bench.Contestant { return p.Del(w.mesh) }),
		},
	}
}

// sizes prints those of the executables.
func (w *world) sizes(b *testing.B) {
	size := func(path string) float64 {
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		return float64(info.Size()) / 1e6
	}
	ours, theirs := size(w.oursExe), size(w.theirs)
	verdict := "met"
	if ours > theirs/3 {
		verdict = "MISSED"
	}
	fmt.Printf("\nexecutable: sluice-cni %.1f MB, istio-cni %.1f MB; goal: at most 0.33 of it: %s, %.2f\n", ours, theirs, verdict, ours/theirs)
}

// legacyOnly returns a folder for PATH as on a node that has iptables-legacy and no other iptables.
func legacyOnly(b *testing.B) (string, error) {
	multi, err := netnstest.LookBinary("xtables-legacy-multi")
	if err != nil {
		return "", err
	}
	dir := b.TempDir()
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			for _, backend := range []string{"", "-legacy"} {
				if err := os.Symlink(multi, filepath.Join(dir, program+backend+verb)); err != nil {
					return "", err
				}
			}
		}
	}
	return dir, nil
}

// program finds one in the folder of built programs.
func program(b *testing.B, name string) string {
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err == nil {
		_, err = exec.LookPath(path)
	}
	if err != nil {
		b.Fatalf("%v: \"make bench-peers\" builds it", err)
	}
	return path
}
