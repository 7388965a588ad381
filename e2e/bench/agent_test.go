package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// Number of pods of the node, and duration of the measurement.
const (
	agentPods   = 250
	agentWindow = time.Minute
)

// agentRows returns rows that measure idle node agents.
func agentRows(b *testing.B, tools bench.Tools) []bench.Row {
	const sluice = "sluice-node"
	return []bench.Row{{
		ID: "agent", Topic: "Node agent",
		Name: fmt.Sprintf("one idle minute of a node with %d mesh pods",
			agentPods),
		RoundsFactor: 0.01,
		Goals: []report.Goal{
			{Entry: sluice, Quantity: report.Share, Limit: 0.001},
			{Entry: sluice, Quantity: report.Memory, Limit: 30e6},
		},
		Note: "sluice-node compares the rules of each pod with the desired ones once per minute, " +
			"and listens for changes. install-cni watches the pods for failures that indicate missing " +
			"redirection, and does not read rules. Both run with default settings, without ambient " +
			"mode. Memory is the maximum resident size (VmHWM) since the start.",
		Candidates: []bench.Candidate{
			agentCandidate(b, sluice, report.Sluice, func(a *nodeAgent) error {
				return a.startSluice(tools)
			}),
			agentCandidate(b, "install-cni", report.Peer, func(a *nodeAgent) error {
				return a.startInstaller(tools)
			}),
		},
	}}
}

// agentCandidate returns a candidate that measures a node agent. start starts the agent after the
// pods have been added to its API server.
func agentCandidate(
	b *testing.B, name string, kind report.Kind, start func(*nodeAgent) error,
) bench.Candidate {
	var a *nodeAgent
	return bench.Candidate{
		Name: name, Kind: kind,
		Open: func() (end func(), err error) {
			if a, err = newNodeAgent(b); err != nil {
				return nil, err
			}
			if err := start(a); err != nil {
				a.end()
				return nil, fmt.Errorf("%w: %s", err, tail(a.log.String()))
			}
			return a.end, nil
		},
		Prepare: func() (bench.Task, error) {
			return bench.Task{Do: a.idle, Count: func() (bench.Sample, error) {
				return nil, nil
			}}, nil
		},
	}
}

// A nodeAgent is an agent in its own mount namespace, as in a pod.
type nodeAgent struct {
	process    *exec.Cmd
	log        bytes.Buffer
	api        *apiservertest.Server
	pod        *decide.Pod // template of all pods, which differ only in name and UID
	text       string      // manifest of pod
	namespaces []*netns.NS
	dir        string
}

// newNodeAgent starts an API server with the pods. It does not start the agent.
func newNodeAgent(b *testing.B) (*nodeAgent, error) {
	text, err := os.ReadFile(filepath.Join("..", "..", "plugin", "decide", "testdata",
		"sidecar.yaml"))
	if err != nil {
		return nil, err
	}
	workload, err := podfile.Read(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	pod := workload.Pod
	dir, err := os.MkdirTemp("", "agent") // paths of sockets must be short
	if err != nil {
		return nil, err
	}
	a := &nodeAgent{api: apiservertest.StartForAgent(b), pod: pod, text: string(text), dir: dir}
	for i := range agentPods {
		name, uid := podName(i)
		a.api.Put(strings.NewReplacer(pod.Metadata.Name, name, pod.Metadata.UID, uid,
			"nodeName: node-2", "nodeName: "+apiservertest.Node).
			Replace(a.text))
	}
	return a, nil
}

// podName returns the name and the UID of a pod.
func podName(i int) (name, uid string) {
	return fmt.Sprintf("orders-%d", i), fmt.Sprintf("7d1e6c2a-%d", i)
}

// tail returns at most the last 1000 bytes of a text.
func tail(text string) string { return text[max(len(text)-1000, 0):] }

// primary is the CNI configuration of the cluster network.
const primary = `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "bridge"}]}`

// runSluiceNode is a script that provides the service account, as the kubelet does, mounts the
// pods' network namespaces, as the runtime does, and executes the agent.
const runSluiceNode = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
account=/var/run/secrets/kubernetes.io/serviceaccount
mkdir -p $account
cp "$DIR"/identity/token "$DIR"/identity/ca.crt $account
number=0
for ns in $NAMESPACES; do
	touch "$DIR/netns/$number"
	mount --bind "$ns" "$DIR/netns/$number"
	number=$((number + 1))
done
exec "$PROGRAM" run`

// startSluice starts sluice-node, and returns when sluice-node has checked all pods.
func (a *nodeAgent) startSluice(tools bench.Tools) error {
	program, err := tools.Find(bench.SluiceNode)
	if err != nil {
		return err
	}
	if err := a.makeDirs("conf", "bin", "run", "image", "identity", "netns"); err != nil {
		return err
	}
	err = os.WriteFile(a.path("conf/10-net.conflist"), []byte(primary), 0o600)
	if err == nil {
		err = os.WriteFile(a.path("image/sluice-cni"), []byte("the plugin"), 0o700)
	}
	if err == nil {
		err = a.populate()
	}
	if err != nil {
		return err
	}
	a.api.ProjectInto(a.path("identity"))
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	var paths []string
	for _, ns := range a.namespaces {
		paths = append(paths, (&bench.Attachment{NS: ns}).Path())
	}
	err = a.run(runSluiceNode,
		"PROGRAM="+program, "NAMESPACES="+strings.Join(paths, " "),
		"NODE_NAME="+apiservertest.Node, "POD_NAME=sluice-node-x7k2p",
		"POD_NAMESPACE="+apiservertest.Namespace,
		"MOUNTED_CNI_NET_DIR="+a.path("conf"), "SLUICE_MOUNTED_BIN_DIR="+a.path("bin"),
		"SLUICE_MOUNTED_CACHE_DIR="+a.path("cache"),
		"SLUICE_SOURCE_DIR="+a.path("image"), "CNI_AGENT_RUN_DIR="+a.path("run"),
		"SLUICE_STATE_DIR="+a.path("state"),
		"SLUICE_MOUNTED_NETNS_DIR="+a.path("netns"), "SLUICE_SEARCH_PROC=false",
		"SLUICE_HEALTH_PORT="+ports[0], "MONITORING_PORT="+ports[1])
	if err != nil {
		return err
	}
	return await("http://127.0.0.1:"+ports[1]+"/metrics",
		fmt.Sprintf(`sluice_pods{state="redirected"} %d`, agentPods))
}

func (a *nodeAgent) path(name string) string { return filepath.Join(a.dir, name) }

// makeDirs creates directories in the directory of the agent.
func (a *nodeAgent) makeDirs(names ...string) error {
	for _, name := range names {
		if err := os.MkdirAll(a.path(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// run starts a script in a new mount namespace. The script finally executes the agent.
func (a *nodeAgent) run(script string, env ...string) error {
	host, port, err := net.SplitHostPort(a.api.Address())
	if err != nil {
		return err
	}
	a.process = exec.Command("/bin/sh", "-c", script)
	a.process.Env = append(env, "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "DIR="+a.dir,
		"KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	a.process.Stdout, a.process.Stderr = &a.log, &a.log
	a.process.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL,
	}
	return a.process.Start()
}

// populate creates the pods' namespaces with rules, and their records, as after ADD.
func (a *nodeAgent) populate() error {
	r, _, err := decide.Parameters(a.pod, []netip.Addr{netip.MustParseAddr("10.244.7.9")},
		&decide.Settings{})
	if err != nil {
		return err
	}
	p, err := nft.Prepare(rules.MustCompile(r))
	if err != nil {
		return err
	}
	store := record.In(a.path("run"))
	for i := range agentPods {
		name, uid := podName(i)
		attachment, err := bench.NewAttachment(i)
		if err != nil {
			return err
		}
		a.namespaces = append(a.namespaces, attachment.NS)
		if _, err := p.Apply(attachment.NS, nft.ApplyOptions{}); err != nil {
			return err
		}
		if err := store.Put(record.Record{
			Key:     record.Key{ContainerID: attachment.ContainerID, IfName: "eth0"},
			Netns:   fmt.Sprintf("/var/run/netns/%d", i),
			Pod:     record.Pod{Namespace: a.pod.Metadata.Namespace, Name: name, UID: uid},
			Outcome: "redirect", Reason: "mesh-pod", Redirect: &r, Backend: compat.BackendNFT,
			Time: time.Now(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// freePorts returns unused TCP ports.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// await polls the URL until the status is 200 and the response contains line. It fails after one
// minute.
func await(url, line string) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	body := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-ticker.C {
		response, err := http.Get(url)
		if err != nil {
			continue // the agent does not listen yet
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if body = string(text); response.StatusCode == http.StatusOK &&
			strings.Contains(body, line) {
			return nil
		}
	}
	return fmt.Errorf("%s: no line %q in the response %q", url, line, tail(body))
}

// idle measures the agent for agentWindow.
func (a *nodeAgent) idle() (bench.Sample, error) {
	before, err := a.cpu()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	<-time.After(agentWindow)
	after, err := a.cpu()
	if err != nil {
		return nil, err
	}
	memory, err := bench.LargestMemory(a.process.Process.Pid)
	share := float64(after-before) / float64(time.Since(begin))
	return bench.Sample{report.Share: share, report.Memory: float64(memory)}, err
}

// cpu returns the CPU time of the agent's process, from its CPU-time clock
// (clock_getcpuclockid(3)).
func (a *nodeAgent) cpu() (time.Duration, error) {
	const perProcess = 2 // CPUCLOCK_SCHED
	var now unix.Timespec
	err := unix.ClockGettime(int32(^a.process.Process.Pid<<3|perProcess), &now)
	return time.Duration(now.Nano()), err
}

// end stops the agent and removes its namespaces and directory.
func (a *nodeAgent) end() {
	if a.process != nil && a.process.Process != nil {
		_ = a.process.Process.Signal(unix.SIGTERM)
		_ = a.process.Wait()
	}
	var errs []error
	for _, ns := range a.namespaces {
		errs = append(errs, ns.Close())
	}
	if err := errors.Join(append(errs, os.RemoveAll(a.dir))...); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
