package plugin_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/record/recordtest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// The name and the UID that newCall passes: the pod of the file sidecar has them.
const (
	podName = "orders-6d5f8c7b9-x2k4n"
	podUID  = "7d1e6c2a-4b0f-4a57-9f63-3b5d0a0005d9"
)

// podFile returns the text of a pod in the testdata of package decide.
func podFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("decide", "testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readPod returns the pod of a file.
func readPod(t testing.TB, name string) *decide.Pod {
	t.Helper()
	workload, err := podfile.Read(strings.NewReader(podFile(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	return workload.Pod
}

// A testEnv is a plugin whose dependencies a test controls.
type testEnv struct {
	*plugin.Plugin
	source         *podSource
	agent          *agentRecorder
	stdout, stderr lockedBuffer
}

// newTestEnv returns an environment with the kernel of this machine, and the pod of a file. If file
// is empty, there is no pod.
func newTestEnv(t testing.TB, file string) *testEnv {
	t.Helper()
	env := &testEnv{source: &podSource{}, agent: &agentRecorder{}}
	if file != "" {
		env.source.pod = readPod(t, file)
	}
	env.Plugin = &plugin.Plugin{
		Source:  func(*config.Config) source.Source { return env.source },
		Agent:   func(*config.Config) plugin.Agent { return env.agent },
		Backend: compat.Choose,
		Stdout:  &env.stdout, Stderr: &env.stderr,
		Now: time.Now,
	}
	return env
}

// A verbError is an error of a verb. Unlike the text of a types.Error, its text contains the code.
type verbError types.Error

// String returns the code, the message and the details.
func (e *verbError) String() string {
	return fmt.Sprintf("code %d: %v", e.Code, (*types.Error)(e))
}

// call calls a verb as package skel does, and returns its error, or nil if the verb succeeds.
func (env *testEnv) call(verb string, c sandboxCall) *verbError {
	funcs := env.Funcs()
	verbs := map[string]func(*skel.CmdArgs) error{
		"ADD": funcs.Add, "CHECK": funcs.Check, "DEL": funcs.Del, "GC": funcs.GC,
		"STATUS": funcs.Status,
	}
	err := verbs[verb](&skel.CmdArgs{
		ContainerID: c.id, IfName: cmp.Or(c.ifname, "eth0"), Netns: c.netns, Args: c.args,
		StdinData: []byte(c.stdin), NetnsOverride: c.override,
	})
	if err == nil {
		return nil
	}
	var e *types.Error
	if !errors.As(err, &e) {
		return &verbError{Code: types.ErrUnknown, Msg: "not an error of CNI: " + err.Error()}
	}
	return (*verbError)(e)
}

// add calls ADD, which must succeed, and returns its output.
func (env *testEnv) add(t testing.TB, c sandboxCall) string {
	t.Helper()
	env.stdout.Reset()
	if e := env.call("ADD", c); e != nil {
		t.Fatalf("ADD: %+v", e)
	}
	return env.stdout.String()
}

// A sandboxCall contains the input of a call of the runtime.
type sandboxCall struct {
	id, netns, args, override string
	ifname                    string // eth0 if empty
	stdin, prevResult, runDir string
}

// newCall returns a call for the pod of these tests in a namespace of this process. If ns is nil,
// the call names no namespace.
func newCall(t testing.TB, ns *netns.NS) sandboxCall {
	c := sandboxCall{
		id: strings.Repeat("e", 64), runDir: t.TempDir(),
		args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + podName + ";K8S_POD_UID=" +
			podUID,
		prevResult: `{"cniVersion":"1.1.0","interfaces":[{"mac":"96:03:6f:be:08:36","name":"eth0","sandbox":"/run/netns/x","mtu":1450}],` +
			`"ips":[{"address":"10.244.1.5/24","gateway":"10.244.1.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}`,
	}
	if ns != nil {
		c.netns = pathOf(ns)
	}
	c.stdin = c.configuration()
	return c
}

// configuration returns the configuration with additional fields.
func (c sandboxCall) configuration(fields ...string) string {
	text := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"e2e","type":"sluice-cni","cni_agent_run_dir":%q,"prevResult":%s`, c.runDir, c.prevResult)
	for _, f := range fields {
		text += "," + f
	}
	return text + "}"
}

// record returns the record of the attachment.
func (c sandboxCall) record(t testing.TB) record.Record {
	t.Helper()
	r, err := record.In(c.runDir).Get(record.Key{ContainerID: c.id, IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkNoRecord fails the test if there is a record.
func (c sandboxCall) checkNoRecord(t testing.TB) {
	t.Helper()
	if all, err := recordtest.List(record.In(c.runDir)); err != nil || len(all) > 0 {
		t.Errorf("records: %+v, error %v; want none", all, err)
	}
}

// podSource is a source that has one pod, one namespace, or an error.
type podSource struct {
	mu        sync.Mutex
	pod       *decide.Pod
	namespace *decide.Namespace
	err       error
	// namespaceErr is the error of requests for the namespace.
	namespaceErr error
	// onRequest is called during a request, if it is not nil.
	onRequest func()
	requested []string
}

func (p *podSource) Pod(_ context.Context, ref source.Ref) (*decide.Pod, error) {
	return p.pod, p.request(fmt.Sprintf("pod %s %s", ref, ref.UID))
}

func (p *podSource) Namespace(_ context.Context, name string) (*decide.Namespace, error) {
	return p.namespace, errors.Join(p.request("namespace "+name), p.namespaceErr)
}

func (p *podSource) Ready(context.Context) error { return p.request("ready") }

func (p *podSource) Close() {}

// request records a request with its description.
func (p *podSource) request(description string) error {
	if p.onRequest != nil {
		p.onRequest()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requested = append(p.requested, description)
	return p.err
}

// An agentRecorder is a node agent that records log lines and reports.
type agentRecorder struct {
	mu    sync.Mutex
	lines []string
	adds  []agent.Add
	// enroll enrolls a pod in ambient mode; nil means an agent that is not running.
	enroll func(ref source.Ref, addresses []netip.Addr, netns int) (*agent.Enrollment, error)
}

func (a *agentRecorder) Enroll(
	_ context.Context, ref source.Ref, addresses []netip.Addr, netns int,
) (*agent.Enrollment, error) {
	if a.enroll == nil {
		return nil, source.WithKind(source.Unavailable, errors.New("node agent: no agent listens"))
	}
	return a.enroll(ref, addresses, netns)
}

func (a *agentRecorder) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, string(line))
	return len(line), nil
}

func (a *agentRecorder) Report(add agent.Add) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adds = append(a.adds, add)
	return add.Validate()
}

// last returns the latest report, which must be valid, without its duration.
func (a *agentRecorder) last(t testing.TB) agent.Add {
	t.Helper()
	if len(a.adds) == 0 {
		t.Fatal("the agent received no report of an ADD")
	}
	add := a.adds[len(a.adds)-1]
	if err := add.Validate(); err != nil {
		t.Error(err)
	}
	add.Duration = 0
	return add
}

// countRules returns the number of rules of Sluice in a namespace.
func countRules(t testing.TB, ns *netns.NS) int {
	t.Helper()
	installed, err := compat.InstalledBackends(ns)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, b := range installed {
		rs, err := b.Read(ns)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range rs.Tables {
			for _, c := range table.Chains {
				n += len(c.Rules)
			}
		}
	}
	return n
}

func checkHasRules(t testing.TB, ns *netns.NS) {
	t.Helper()
	if countRules(t, ns) == 0 {
		t.Error("the namespace has no rules of Sluice, want some")
	}
}

func checkNoRules(t testing.TB, ns *netns.NS) {
	t.Helper()
	if n := countRules(t, ns); n > 0 {
		t.Errorf("the namespace has %d rules of Sluice, want none", n)
	}
}

// lockedBuffer is a buffer that several goroutines may write concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// logLines returns the decoded lines of the log.
func (env *testEnv) logLines(t testing.TB) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for text := range strings.Lines(env.stderr.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("the log line %q is not JSON: %v", text, err)
		}
		checkUniqueKeys(t, text)
		lines = append(lines, line)
	}
	return lines
}
