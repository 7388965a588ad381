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
	"github.com/sluice-mesh/sluice/install/serve/servetest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// A pluginEnv is the environment shared by all plugins: a node, an API server and its pods.
type pluginEnv struct {
	tools       bench.Tools
	node        *netns.NS
	api         *apiservertest.Server
	texts       []string // the manifests of the API server's pods
	mesh, plain bench.Pod
	size        report.Pod // of the mesh pod
	plugins     []*bench.Plugin
}

// newPluginEnv starts an API server and an agent, and adds all plugins to compare.
func newPluginEnv(b *testing.B, tools bench.Tools) *pluginEnv {
	env := &pluginEnv{tools: tools, node: netnstest.New(b)}
	if err := env.node.Do(func() error {
		env.api = apiservertest.Start(b)
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	env.mesh, env.size = env.pod(b, "sidecar")
	env.plain, _ = env.pod(b, "not-injected")
	legacy := map[string]any{"backend": "legacy"}
	native := map[string]any{"native_nftables": true}
	env.startAgent(b,
		env.add(b, report.WithAgent, report.Sluice, bench.SluiceCNI, "sluice-cni-kubeconfig", nil))
	env.add(b, report.WithoutAgent, report.Sluice, bench.SluiceCNI, "sluice-cni-kubeconfig", nil)
	env.add(b, "sluice-cni, no agent, iptables-legacy", report.Sluice, bench.SluiceCNI,
		"sluice-cni-kubeconfig", legacy)
	env.add(b, "istio-cni, detected iptables", report.Peer, bench.IstioCNI,
		"istio-cni-kubeconfig", nil)
	env.add(b, "istio-cni, native nftables", report.Peer, bench.IstioCNI, "istio-cni-kubeconfig",
		native)
	env.add(b, "istio-cni, iptables-legacy", report.Peer, bench.IstioCNI, "istio-cni-kubeconfig", nil)
	env.plugins[len(env.plugins)-1].Env = []string{"PATH=" + legacyOnly(b)}
	return env
}

// startAgent starts the parts of the node agent that serve pods to the plugin: the pod cache and
// the socket in runDir.
func (env *pluginEnv) startAgent(b *testing.B, runDir string) {
	api := apiservertest.Start(b) // the server of the plugins is in the node's namespace
	api.Put(env.texts...)
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
	server := serve.New(servetest.Fill(serve.Options{Socket: agent.SocketIn(runDir), Objects: m}))
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
			b.Fatal("the agent's pod cache and socket are not ready after 10 s")
		}
	}
}

// add adds a plugin and returns its run directory, which contains the plugin's credentials. The
// directory is on a tmpfs, like /var/run of a node.
func (env *pluginEnv) add(
	b *testing.B, name string, kind report.Kind, program, kubeconfig string, config map[string]any,
) (runDir string) {
	dir, err := os.MkdirTemp("/dev/shm", "bench-peers-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	env.api.WriteKubeconfig(filepath.Join(dir, kubeconfig), func(_, _ map[string]any) {})
	p := &bench.Plugin{
		Name: name, Kind: kind, Node: env.node, Config: map[string]any{"cni_agent_run_dir": dir},
	}
	for field, value := range config {
		p.Config[field] = value
	}
	// A missing program fails when it is executed, and is then omitted with that reason.
	if p.Path, err = env.tools.Find(program); err != nil {
		p.Path = filepath.Join(env.tools.Bin, program)
	}
	env.plugins = append(env.plugins, p)
	return dir
}

// pod adds an example pod of the plugin's tests to the API server.
func (env *pluginEnv) pod(b *testing.B, name string) (bench.Pod, report.Pod) {
	text, err := os.ReadFile(filepath.Join("..", "..", "plugin", "decide", "testdata", name+
		".yaml"))
	if err != nil {
		b.Fatal(err)
	}
	env.api.Put(string(text))
	env.texts = append(env.texts, string(text))
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

// rows returns the tasks of CNI plugins. istio-cni does not request annotations from the runtime,
// so passing them has no effect on it.
func (env *pluginEnv) rows() []bench.Row {
	const topic = "CNI plugin"
	forEachPlugin := func(newCandidate func(*bench.Plugin) bench.Candidate) []bench.Candidate {
		var candidates []bench.Candidate
		for _, p := range env.plugins {
			candidates = append(candidates, newCandidate(p))
		}
		return candidates
	}
	withoutAnnotations := env.plain
	withoutAnnotations.Annotations = nil
	goals := func(q report.Quantity, factor float64) []report.Goal {
		return []report.Goal{
			{Entry: report.WithAgent, Quantity: q, Factor: factor},
			{Entry: report.WithoutAgent, Quantity: q, Factor: factor},
		}
	}
	return []bench.Row{
		{
			ID: report.AddRow, Topic: topic, Name: "ADD of a mesh pod", Plotted: report.Wall,
			Goals: slices.Concat(goals(report.Wall, 1.0/8), goals(report.Memory, 1.0/4)),
			Note: "With the node agent, as deployed, the plugin gets the pod from the agent; without " +
				"an agent it gets the pod from the API server, as istio-cni does. The cost in the " +
				"agent and in the API server is not included.",
			Candidates: forEachPlugin(func(p *bench.Plugin) bench.Candidate {
				return p.Add(env.mesh, true)
			}),
		},
		{
			ID: "skip", Topic: topic,
			Name:    "ADD of a pod that is not redirected; the runtime passes annotations",
			Plotted: report.Wall,
			Goals:   goals(report.Wall, 1.0/6),
			Candidates: forEachPlugin(func(p *bench.Plugin) bench.Candidate {
				return p.Add(env.plain, false)
			}),
		},
		{
			ID: "skip-asking", Topic: topic,
			Name:    "ADD of a pod that is not redirected; the agent or the API server provides the pod",
			Plotted: report.Wall,
			Goals:   goals(report.Wall, 1.0/6),
			Candidates: forEachPlugin(func(p *bench.Plugin) bench.Candidate {
				return p.Add(withoutAnnotations, false)
			}),
		},
		{
			ID: report.DelRow, Topic: topic, Name: "DEL of a mesh pod", Plotted: report.Wall,
			Goals:      goals(report.Wall, 1.0/6),
			Candidates: forEachPlugin(func(p *bench.Plugin) bench.Candidate { return p.Del(env.mesh) }),
		},
	}
}

// legacyOnly returns a directory for PATH that contains iptables-legacy and no other iptables. If
// iptables-legacy is not installed, the directory is empty, so that the plugin fails instead of
// using another iptables.
func legacyOnly(b *testing.B) string {
	dir := b.TempDir()
	multi, err := netnstest.LookBinary("xtables-legacy-multi")
	if err != nil {
		return dir
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			for _, backend := range []string{"", "-legacy"} {
				if err := os.Symlink(multi, filepath.Join(dir, program+backend+verb)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	return dir
}
