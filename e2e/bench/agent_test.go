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
	"github.com/sluice-mesh/sluice/install/agent/clustertest"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// How many pods the node has, and how long its agent is watched.
const (
	agentPods   = 250
	agentWindow = time.Minute
)

// agentRows measure the node agent when nothing happens.
func agentRows(b *testing.B, tools bench.Tools) []bench.Row {
	const name = "sluice-node"
	var a *nodeAgent
	return []bench.Row{{
		ID: "agent", Topic: "The node agent", Name: fmt.Sprintf("nothing happens for a minute; it audits %d pods of the mesh", agentPods),
		Share: 0.01,
		Goals: []report.Goal{
			{Of: name, Quantity: report.Share, Limit: 0.001},
			{Of: name, Quantity: report.Memory, Limit: 30e6},
		},
		Note: "By default each pod is compared with what it should have once a minute, completely and from the kernel. " +
			"Memory is the most that was resident since the start.",
		Contestants: []bench.Contestant{{
			Name: name, Kind: report.Ours,
			Open: func() (end func(), err error) {
				if a, err = startAgent(b, tools); err != nil {
					return nil, err
				}
				return a.end, nil
			},
			Prepare: func() (bench.Task, error) {
				return bench.Task{Do: a.idle, Count: func() (bench.Sample, error) { return nil, nil }}, nil
			},
		}},
	}}
}

// A nodeAgent runs in a mount namespace of its own, as in its pod.
type nodeAgent struct {
	process    *exec.Cmd
	log        bytes.Buffer
	namespaces []*netns.NS
	dir        string
}

// inPod mounts what the kubelet and the runtime would: the service account, and the namespaces of the pods.
const inPod = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
account=/var/run/secrets/kubernetes.io/serviceaccount
mkdir -p $account
cp "$DIR"/identity/token "$DIR"/identity/ca.crt $account
number=0
for space in $NAMESPACES; do
	touch "$DIR/netns/$number"
	mount --bind "$space" "$DIR/netns/$number"
	number=$((number + 1))
done
exec "$PROGRAM" run`

// startAgent returns when the agent has audited all pods.
func startAgent(b *testing.B, tools bench.Tools) (*nodeAgent, error) {
	program, err := tools.Find(bench.SluiceNode)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "agent") // paths of sockets must be short
	if err != nil {
		return nil, err
	}
	a := &nodeAgent{dir: dir}
	if err := a.start(b, program); err != nil {
		a.end()
		return nil, fmt.Errorf("%w: %s", err, lastLines(a.log.String()))
	}
	return a, nil
}

func lastLines(text string) string { return text[max(len(text)-1000, 0):] }

func (a *nodeAgent) start(b *testing.B, program string) error {
	for _, d := range []string{"conf", "bin", "run", "image", "identity", "netns"} {
		if err := os.Mkdir(filepath.Join(a.dir, d), 0o755); err != nil {
			return err
		}
	}
	const primary = `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "bridge"}]}`
	err := os.WriteFile(filepath.Join(a.dir, "conf", "10-net.conflist"), []byte(primary), 0o600)
	if err == nil {
		err = os.WriteFile(filepath.Join(a.dir, "image", "sluice-cni"), []byte("the plugin"), 0o700)
	}
	if err != nil {
		return err
	}
	api := clustertest.Start(b)
	api.Identity(filepath.Join(a.dir, "identity"))
	if err := a.populate(api); err != nil {
		return err
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(api.Address())
	if err != nil {
		return err
	}
	var spaces []string
	for _, ns := range a.namespaces {
		spaces = append(spaces, (&bench.Attachment{NS: ns}).Path())
	}
	path := func(name string) string { return filepath.Join(a.dir, name) }
	a.process = exec.Command("/bin/sh", "-c", inPod)
	a.process.Env = []string{
		"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "DIR=" + a.dir, "PROGRAM=" + program, "NAMESPACES=" + strings.Join(spaces, " "),
		"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port,
		"NODE_NAME=" + clustertest.Node, "POD_NAME=sluice-node-x7k2p", "POD_NAMESPACE=" + clustertest.Namespace,
		"MOUNTED_CNI_NET_DIR=" + path("conf"), "SLUICE_MOUNTED_BIN_DIR=" + path("bin"), "SLUICE_MOUNTED_CACHE_DIR=" + path("cache"),
		"SLUICE_SOURCE_DIR=" + path("image"), "CNI_AGENT_RUN_DIR=" + path("run"), "SLUICE_STATE_DIR=" + path("state"),
		"SLUICE_MOUNTED_NETNS_DIR=" + path("netns"), "SLUICE_SEARCH_PROC=false",
		"SLUICE_HEALTH_PORT=" + ports[0], "MONITORING_PORT=" + ports[1],
	}
	a.process.Stdout, a.process.Stderr = &a.log, &a.log
	a.process.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := a.process.Start(); err != nil {
		return err
	}
	return await("http://127.0.0.1:"+ports[1]+"/metrics", fmt.Sprintf(`sluice_pods{state="redirected"} %d`, agentPods))
}

// populate makes pods whose ADD was done: in the API server, their namespaces with rules, and their records.
func (a *nodeAgent) populate(api *clustertest.Server) error {
	text, err := os.ReadFile(filepath.Join("..", "..", "plugin", "decide", "testdata", "sidecar.yaml"))
	if err != nil {
		return err
	}
	pod, err := podfile.Read(bytes.NewReader(text))
	if err != nil {
		return err
	}
	r, _, err := decide.Parameters(pod, []netip.Addr{netip.MustParseAddr("10.244.7.9")}, &decide.Settings{})
	if err != nil {
		return err
	}
	p, err := nft.Prepare(rules.Compile(r))
	if err != nil {
		return err
	}
	store := record.In(filepath.Join(a.dir, "run"))
	for i := range agentPods {
		name, uid := fmt.Sprintf("orders-%d", i), fmt.Sprintf("7d1e6c2a-%d", i)
		api.Put(strings.NewReplacer(pod.Metadata.Name, name, pod.Metadata.UID, uid, "nodeName: node-2", "nodeName: "+clustertest.Node).
			Replace(string(text)))
		attachment, err := bench.NewAttachment(i)
		if err != nil {
			return err
		}
		a.namespaces = append(a.namespaces, attachment.NS)
		if _, err := p.Apply(attachment.NS); err != nil {
			return err
		}
		if err := store.Put(record.Record{
			Key: record.Key{ContainerID: attachment.ContainerID, IfName: "eth0"}, Netns: fmt.Sprintf("/var/run/netns/%d", i),
			Pod:     record.Pod{Namespace: pod.Metadata.Namespace, Name: name, UID: uid},
			Outcome: "redirect", Reason: "mesh-pod", Redirect: &r, Engine: compat.EngineNFT, Time: time.Now(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// freePorts are some that nobody has.
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

// await asks until the answer has the line.
func await(url, line string) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	answer := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-ticker.C {
		response, err := http.Get(url)
		if err != nil {
			continue // it has only been started
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if answer = string(text); strings.Contains(answer, line) {
			return nil
		}
	}
	return fmt.Errorf("%s does not say %q", url, line)
}

// idle watches the agent for a while.
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

// cpu is the time that the agent's threads have run, by the clock that the kernel has for it (clock_getcpuclockid(3)).
func (a *nodeAgent) cpu() (time.Duration, error) {
	const perProcess = 2 // CPUCLOCK_SCHED
	var now unix.Timespec
	err := unix.ClockGettime(int32(^a.process.Process.Pid<<3|perProcess), &now)
	return time.Duration(now.Nano()), err
}

// end stops the agent, and takes everything away.
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
