package bench_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// A world is what all plugins find: a node, its API server, and the pods that this one knows.
type world struct {
	tools       bench.Tools
	node        *netns.NS
	api         *apiservertest.Server
	texts       []string // of its pods
	mesh, plain bench.Pod
	size        report.Pod // of the mesh pod
	plugins     []*bench.Plugin
}

func newWorld(b *testing.B, tools bench.Tools) *world {
	w := &world{tools: tools, node: netnstest.New(b)}
	if err := w.node.Do(func() error {
		w.api = apiservertest.Start(b)
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	w.mesh, w.size = w.pod(b, "sidecar")
	w.plain, _ = w.pod(b, "not-injected")
	legacy := map[string]any{"backend": "legacy"}
	native := map[string]any{"native_nftables": true}
	w.startAgent(b,
		w.add(b, report.WithAgent, report.Ours, bench.SluiceCNI, "sluice-cni-kubeconfig", nil))
	w.add(b, report.WithoutAgent, report.Ours, bench.SluiceCNI, "sluice-cni-kubeconfig", nil)
	w.add(b, "sluice-cni, no agent, iptables-legacy", report.Ours, bench.SluiceCNI,
		"sluice-cni-kubeconfig", legacy)
	w.add(b, "istio-cni, detected iptables", report.Peer, bench.IstioCNI,
		"istio-cni-kubeconfig", nil)
	w.add(b, "istio-cni, native nftables", report.Peer, bench.IstioCNI, "istio-cni-kubeconfig",
		native)
	w.add(b, "istio-cni, iptables-legacy", report.Peer, bench.IstioCNI, "istio-cni-kubeconfig", nil)
	if path, err := legacyOnly(b); err == nil {
		w.plugins[len(w.plugins)-1].Env = []string{"PATH=" + path}
	}
	return w
}

// startAgent starts what of the node agent answers the plugin of the run directory: the socket, and
// the mirror of the node's pods after it.
func (w *world) startAgent(b *testing.B, runDir string) {
	api := apiservertest.Start(b) // the plugin's is in the node's namespace
	api.Put(w.texts...)
	fetch := source.NewAPIServer(source.Options{Kubeconfig: api.Kubeconfig()})
	b.Cleanup(fetch.Close)
	client, err := apiclient.New(apiclient.Options{
		Server: api.URL(), TokenFile: api.TokenFile(), CAFile: api.CAFile(),
	})
	if err != nil {
		b.Fatal(err)
	}
	m, err := podcache.New(podcache.Options{Client: client, NodeName: "node-2", Fetch: fetch})
	if err != nil {
		b.Fatal(err)
	}
	server := serve.New(serve.Options{Socket: agent.SocketIn(runDir), Objects: m})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { m.Run(ctx) })
	group.Go(func() { server.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		group.Wait()
	})
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(10 * time.Second); !m.Synced() || !server.Listening(); <-ticker.C {
		if time.Now().After(end) {
			b.Fatal("the agent's socket is not ready")
		}
	}
}

// add adds a plugin with a run directory of its own and credentials in it, which it returns. It is
// in memory, as /var/run of a node is.
func (w *world) add(
	b *testing.B, name string, kind report.Kind, program, kubeconfig string, config map[string]any,
) (runDir string) {
	dir, err := os.MkdirTemp("/dev/shm", "bench-peers-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.api.WriteKubeconfig(filepath.Join(dir, kubeconfig), func(_, _ map[string]any) {})
	p := &bench.Plugin{
		Name: name, Kind: kind, Node: w.node, Config: map[string]any{"cni_agent_run_dir": dir},
	}
	for field, value := range config {
		p.Config[field] = value
	}
	// One that is not there fails when it is executed, and is left out with that reason.
	if p.Path, err = w.tools.Find(program); err != nil {
		p.Path = filepath.Join(w.tools.Bin, program)
	}
	w.plugins = append(w.plugins, p)
	return dir
}

// pod gives the API server a pod out of the plugin's examples.
func (w *world) pod(b *testing.B, name string) (bench.Pod, report.Pod) {
	text, err := os.ReadFile(filepath.Join("..", "..", "plugin", "decide", "testdata", name+
		".yaml"))
	if err != nil {
		b.Fatal(err)
	}
	w.api.Put(string(text))
	w.texts = append(w.texts, string(text))
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
	return bench.Pod{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Annotations: m.Annotations,
	}, report.Pod{Bytes: len(text)}
}

// rows are the tasks of plugins. Istio's does not ask the runtime for annotations, so that passing
// them to it changes nothing.
func (w *world) rows() []bench.Row {
	const topic = "CNI plugin"
	contest := func(enter func(*bench.Plugin) bench.Candidate) []bench.Candidate {
		var contestants []bench.Candidate
		for _, p := range w.plugins {
			contestants = append(contestants, enter(p))
		}
		return contestants
	}
	unannounced := w.plain
	unannounced.Annotations = nil
	atMost := func(q report.Quantity, factor float64) []report.Goal {
		return []report.Goal{
			{Of: report.WithAgent, Quantity: q, Factor: factor},
			{Of: report.WithoutAgent, Quantity: q, Factor: factor},
		}
	}
	return []bench.Row{
		{
			ID: report.AddRow, Topic: topic, Name: "ADD of a mesh pod", Plotted: report.Wall,
			Goals: slices.Concat(atMost(report.Wall, 1.0/8), atMost(report.Memory, 1.0/4)),
			Note: "With the node agent, as deployed, the plugin gets the pod from the agent; without an agent it gets the pod from the API " +
				"server, as istio-cni does. The cost in the agent and in the API server is not included.",
			Candidates: contest(func(p *bench.Plugin) bench.Candidate {
				return p.Add(w.mesh, true)
			}),
		},
		{
			ID: "skip", Topic: topic,
			Name:    "ADD of a pod that is not redirected; the runtime passes annotations",
			Plotted: report.Wall,
			Goals:   atMost(report.Wall, 1.0/6),
			Candidates: contest(func(p *bench.Plugin) bench.Candidate {
				return p.Add(w.plain, false)
			}),
		},
		{
			ID: "skip-asking", Topic: topic,
			Name:    "ADD of a pod that is not redirected; the agent or the API server provides the pod",
			Plotted: report.Wall,
			Goals:   atMost(report.Wall, 1.0/6),
			Candidates: contest(func(p *bench.Plugin) bench.Candidate {
				return p.Add(unannounced, false)
			}),
		},
		{
			ID: report.DelRow, Topic: topic, Name: "DEL of a mesh pod", Plotted: report.Wall,
			Goals:      atMost(report.Wall, 1.0/6),
			Candidates: contest(func(p *bench.Plugin) bench.Candidate { return p.Del(w.mesh) }),
		},
	}
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
