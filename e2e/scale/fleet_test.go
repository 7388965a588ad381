package scale

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// podsPerNode is the number of injected pods of each node.
const podsPerNode = 10

// A fleet is a simulated cluster: an API server and the agents of its nodes.
type fleet struct {
	t      *testing.T
	server *apiservertest.Server
	meter  *meter
	dir    string
	agents []runningAgent
	failed chan error
}

// A runningAgent is the running agent of a node.
type runningAgent struct {
	stop context.CancelFunc
	done chan struct{}
}

// newFleet returns a cluster whose agents have not been started.
func newFleet(t *testing.T, nodes int) *fleet {
	t.Helper()
	f := &fleet{
		t: t, server: apiservertest.StartInMemory(t), agents: make([]runningAgent, nodes),
		failed: make(chan error, 2*nodes), // each node runs two agents, before and after the upgrade
	}
	f.meter = &meter{server: f.server}
	// The directory is on a tmpfs, because syncing thousands of small files to a disk is slow.
	var err error
	f.dir, err = os.MkdirTemp("/dev/shm", "scale")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(f.dir)) })
	f.server.AllowHTTP2()
	f.server.SetToken(f.token(time.Hour))
	f.server.Issue(func(seconds int64) (string, time.Time) {
		lifetime := time.Duration(seconds) * time.Second
		text := f.token(lifetime)
		f.server.AddToken(text)
		return text, time.Now().Add(lifetime)
	})
	f.server.ProjectInto(f.dir)
	f.server.SetDaemonSet(daemonSet(t, nodes, 0))
	pod := f.pod()
	for i := range nodes {
		f.server.AddNode(nodeName(i), map[string]any{"kubernetes.io/os": "linux"})
		for j := range podsPerNode {
			f.putPod(pod, i, j)
		}
	}
	return f
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// token returns a token of the agent's service account.
func (f *fleet) token(lifetime time.Duration) string {
	return apiservertest.JWT(apiservertest.Account, time.Now(), time.Now().Add(lifetime))
}

// pod returns an injected pod of about 8 kB.
func (f *fleet) pod() map[string]any {
	text, err := os.ReadFile(filepath.Join("..", "..", "plugin", "decide", "testdata",
		"sidecar.yaml"))
	must(f.t, err)
	var pod map[string]any
	must(f.t, yaml.Unmarshal(text, &pod))
	return pod
}

// putPod creates or updates a copy of a pod on a node.
func (f *fleet) putPod(pod map[string]any, node, number int) {
	pod = maps.Clone(pod)
	metadata := maps.Clone(pod["metadata"].(map[string]any))
	spec := maps.Clone(pod["spec"].(map[string]any))
	metadata["name"] = fmt.Sprintf("orders-%d-%d", node, number)
	metadata["uid"] = metadata["name"]
	spec["nodeName"] = nodeName(node)
	pod["metadata"], pod["spec"] = metadata, spec
	f.server.PutPod(pod)
}

// start starts the agent of a node.
func (f *fleet) start(node int) {
	a, err := newAgent(f.server, f.meter, nodeName(node), f.dir)
	must(f.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	r := runningAgent{stop, make(chan struct{})}
	f.agents[node] = r
	go func() {
		defer close(r.done)
		if err := a.run(ctx); err != nil {
			f.failed <- fmt.Errorf("%s: %w", nodeName(node), err)
		}
	}()
}

func (f *fleet) startAll() {
	for i := range f.agents {
		f.start(i)
	}
}

// stop stops the agent of a node and waits for its end.
func (f *fleet) stop(node int) {
	f.agents[node].stop()
	<-f.agents[node].done
}

// stopAll stops all agents, and fails the test with the first error of an agent.
func (f *fleet) stopAll() {
	for _, r := range f.agents {
		r.stop()
	}
	for _, r := range f.agents {
		<-r.done
	}
	select {
	case err := <-f.failed:
		f.t.Error(err)
	default:
	}
}

// statusInterval is the interval at which the controller updates the DaemonSet's status during a
// rollout.
const statusInterval = time.Second

// upgrade replaces all agents, a tenth at a time. Each node has no agent for 5 to 15 seconds. Like
// the controller, upgrade updates the number of new agents in the DaemonSet's status.
func (f *fleet) upgrade() {
	nodes := make(chan int)
	updated := make(chan struct{}, len(f.agents))
	var replacing sync.WaitGroup
	for range max(1, len(f.agents)/10) {
		replacing.Go(func() {
			for i := range nodes {
				f.stop(i)
				time.Sleep(5*time.Second + rand.N(10*time.Second))
				f.start(i)
				updated <- struct{}{}
			}
		})
	}
	go func() {
		for i := range f.agents {
			nodes <- i
		}
		close(nodes)
	}()
	for done := 0; done < len(f.agents); {
		time.Sleep(statusInterval)
		n := len(updated)
		for range n {
			<-updated
		}
		done += n
		f.server.SetDaemonSet(daemonSet(f.t, len(f.agents), done))
	}
	replacing.Wait()
}

// must fails the test immediately if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
