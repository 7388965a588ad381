package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mattn/go-shellwords"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sluice-mesh/sluice/rules"
)

// A fakeCluster is an API server with pods whose containers run a function.
type fakeCluster struct {
	pods        []corev1.Pod
	nodes       []string // names, or OPERATING-SYSTEM:NAME
	deployments []appsv1.Deployment
	jobs        []batchv1.Job
	cronJobs    []batchv1.CronJob
	// command runs a command in a pod and returns its exit code.
	command func(pod string, args []string, in io.Reader, out, errOut io.Writer) int

	mu  sync.Mutex
	ran []string // as POD: COMMAND
	// agentLists contains the lists of node agents, as NAMESPACE, LIMIT, NODE.
	agentLists       []string
	allPodsForbidden bool // to list the pods of all namespaces is forbidden
}

func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	reply := func(o any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o)
	}
	refuse := func(code int, reason metav1.StatusReason) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Reason: reason, Code: int32(code),
			Message: fmt.Sprintf("%s: %s", r.URL.Path, reason),
		})
	}
	switch {
	case len(parts) == 3 && parts[2] == "nodes":
		list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}}
		for _, name := range f.nodes {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if system, rest, found := strings.Cut(name, ":"); found {
				n.Name, n.Labels = rest, map[string]string{corev1.LabelOSStable: system}
			}
			list.Items = append(list.Items, n)
		}
		reply(list)
	case len(parts) == 3 && parts[2] == "pods", len(parts) == 5 && parts[4] == "pods":
		namespace := ""
		if len(parts) == 5 {
			namespace = parts[3]
		}
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		_, node, hasNode := strings.Cut(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		if selector.Matches(labels.Set{"k8s-app": "sluice-node"}) {
			f.mu.Lock()
			f.agentLists = append(f.agentLists,
				fmt.Sprintf("%s, %s, %s", namespace, r.URL.Query().Get("limit"), node))
			f.mu.Unlock()
		}
		if namespace == "" && f.allPodsForbidden {
			refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
			return
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, p := range f.pods {
			isInNamespace := namespace == "" || p.Namespace == namespace
			isOnNode := !hasNode || p.Spec.NodeName == node
			if isInNamespace && isOnNode && selector.Matches(labels.Set(p.Labels)) {
				list.Items = append(list.Items, p)
			}
		}
		reply(list)
	case len(parts) == 6 && parts[4] == "pods":
		i := slices.IndexFunc(f.pods, func(p corev1.Pod) bool {
			return p.Namespace == parts[3] && p.Name == parts[5]
		})
		if i < 0 {
			refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		pod := f.pods[i]
		pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		reply(pod)
	case len(parts) == 3 && parts[2] == "namespaces":
		list := corev1.NamespaceList{TypeMeta: metav1.TypeMeta{Kind: "NamespaceList", APIVersion: "v1"}}
		for _, name := range []string{"default", "istio-system", "shop"} {
			list.Items = append(list.Items, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		reply(list)
	case len(parts) == 6 && parts[0] == "apis":
		list := metav1.PartialObjectMetadataList{}
		for _, o := range f.workloads(parts[5]) {
			if o.GetNamespace() == parts[4] {
				list.Items = append(list.Items, metav1.PartialObjectMetadata{
					ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()},
				})
			}
		}
		reply(list)
	case len(parts) == 7 && parts[0] == "apis":
		all := f.workloads(parts[5])
		i := slices.IndexFunc(all, func(o metav1.Object) bool {
			return o.GetNamespace() == parts[4] && o.GetName() == parts[6]
		})
		if i < 0 {
			refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		reply(all[i])
	case len(parts) == 7 && parts[6] == "exec":
		f.exec(w, r, parts[5])
	default:
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// workloads returns the objects of a resource.
func (f *fakeCluster) workloads(resource string) (all []metav1.Object) {
	switch resource {
	case "deployments":
		for i := range f.deployments {
			all = append(all, &f.deployments[i])
		}
	case "jobs":
		for i := range f.jobs {
			all = append(all, &f.jobs[i])
		}
	case "cronjobs":
		for i := range f.cronJobs {
			all = append(all, &f.cronJobs[i])
		}
	}
	return all
}

// exec implements version 5 of the protocol of kubectl exec.
func (f *fakeCluster) exec(w http.ResponseWriter, r *http.Request, pod string) {
	args := r.URL.Query()["command"]
	f.mu.Lock()
	f.ran = append(f.ran, pod+": "+strings.Join(args, " "))
	f.mu.Unlock()
	stdin := wsstream.IgnoreChannel
	if r.URL.Query().Get("stdin") == "true" {
		stdin = wsstream.ReadChannel
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		remotecommandconsts.StreamProtocolV5Name: {Binary: true, Channels: []wsstream.ChannelType{
			stdin, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel,
		}},
	})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return
	}
	defer conn.Close()
	code := f.command(pod, args, streams[0], streams[1], streams[2])
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommandconsts.NonZeroExitCodeReason,
			Message: "command terminated",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: remotecommandconsts.ExitCodeCauseType, Message: fmt.Sprint(code),
			}}},
		}
	}
	_ = json.NewEncoder(streams[3]).Encode(status)
}

func pod(namespace, name, node string, labels ...string) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{},
		},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		p.Labels[key] = value
	}
	return p
}

// newFakeCluster returns a cluster with two nodes; node b has no node agent.
func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		nodes: []string{"a", "b"},
		pods: []corev1.Pod{
			pod("istio-system", "sluice-node-a", "a", "k8s-app=sluice-node"),
			pod("shop", "web-1", "a", "app=web"), pod("shop", "web-2", "a", "app=web"),
			pod("shop", "far", "b"),
			pod("shop", "nightly-1-x", "a", "batch.kubernetes.io/job-name=nightly-1"),
			pod("default", "alone", "a"),
		},
		jobs: []batchv1.Job{{
			TypeMeta:   metav1.TypeMeta{Kind: "Job", APIVersion: "batch/v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nightly-1"},
			Spec: batchv1.JobSpec{Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"batch.kubernetes.io/job-name": "nightly-1"},
			}},
		}},
		cronJobs: []batchv1.CronJob{{
			TypeMeta:   metav1.TypeMeta{Kind: "CronJob", APIVersion: "batch/v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nightly"},
			Status: batchv1.CronJobStatus{
				Active: []corev1.ObjectReference{{Namespace: "shop", Name: "nightly-1"}},
			},
		}},
		deployments: []appsv1.Deployment{{
			TypeMeta:   metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			},
		}},
		command: func(_ string, args []string, _ io.Reader, out, _ io.Writer) int {
			fmt.Fprintln(out, strings.Join(args, " "))
			return 0
		},
	}
}

// sluice runs the plugin against the cluster. The end of ctx interrupts the plugin.
func (f *fakeCluster) sluice(
	ctx context.Context, t *testing.T, in io.Reader, args ...string,
) (code int, stdout, stderr string) {
	t.Helper()
	f.connect(t)
	var out, errOut bytes.Buffer
	code = run(ctx, func() {}, genericiooptions.IOStreams{In: in, Out: &out, ErrOut: &errOut}, args)
	return code, out.String(), errOut.String()
}

// connect serves the cluster to plugins that start in the environment of the test.
func (f *fakeCluster) connect(t *testing.T) {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %s}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == commandName {
		main()
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the streaming library logs each connection that ends
	os.Exit(m.Run())
}

func TestVerbsRunInTheNodeAgentOfThePod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nat.save")
	if err := os.WriteFile(file, []byte("*nat\nCOMMIT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		args  []string
		code  int
		ran   []string
		error string // part of stderr
	}{
		{
			"namespace and name",
			[]string{"check", "shop/web-1"},
			0,
			[]string{"sluice-node-a: rules check --pod shop/web-1"},
			"",
		},
		{
			"name in the current namespace",
			[]string{"check", "alone"},
			0,
			[]string{"sluice-node-a: rules check --pod default/alone"},
			"",
		},
		{
			"flags of kubectl before and after the pod",
			[]string{"check", "-n", "shop", "web-1", "-o", "json"},
			0,
			[]string{"sluice-node-a: rules check --pod shop/web-1 -o json"},
			"",
		},
		{
			"namespace after the pod",
			[]string{"explain", "web-1", "-n", "shop", "out tcp 10.0.0.1 > 10.0.0.2:80"},
			0,
			[]string{
				"sluice-node-a: rules explain --pod shop/web-1 out tcp 10.0.0.1 > 10.0.0.2:80",
			},
			"",
		},
		{
			"deployment",
			[]string{"show", "deploy/web", "-n", "shop"},
			0,
			[]string{
				"sluice-node-a: rules show --pod shop/web-1",
				"sluice-node-a: rules show --pod shop/web-2",
			},
			"",
		},
		{
			"deployment with its namespace",
			[]string{"doctor", "shop/deployment/web"},
			0,
			[]string{
				"sluice-node-a: rules doctor --pod shop/web-1",
				"sluice-node-a: rules doctor --pod shop/web-2",
			},
			"",
		},
		{
			"job",
			[]string{"check", "job/nightly-1", "-n", "shop"},
			0,
			[]string{"sluice-node-a: rules check --pod shop/nightly-1-x"},
			"",
		},
		{
			"the active job of a cron job",
			[]string{"check", "shop/cronjob/nightly"},
			0,
			[]string{"sluice-node-a: rules check --pod shop/nightly-1-x"},
			"",
		},
		{
			"status of a deployment",
			[]string{"status", "shop/deploy/web"},
			0,
			[]string{
				"sluice-node-a: rules check --pod shop/web-1 --output text",
				"sluice-node-a: rules check --pod shop/web-2 --output text",
			},
			"",
		},
		{
			"label selector",
			[]string{"check", "-n", "shop", "-l", "app=web"},
			0,
			[]string{
				"sluice-node-a: rules check --pod shop/web-1",
				"sluice-node-a: rules check --pod shop/web-2",
			},
			"",
		},
		{
			"local file",
			[]string{"diff", "shop/web-1", "--iptables-save", file},
			0,
			[]string{"sluice-node-a: rules diff --pod shop/web-1 --iptables-save -"},
			"",
		},
		{
			"status of a pod",
			[]string{"status", "shop/web-1"},
			0,
			[]string{"sluice-node-a: rules check --pod shop/web-1 --output text"},
			"",
		},
		{
			"status of a pod and of selected pods",
			[]string{"status", "shop/web-1", "-l", "app=web"},
			exitBadInput, nil, "POD and --selector cannot be combined",
		},
		{
			"status of a pod with --watch",
			[]string{"status", "shop/web-1", "--watch"},
			exitBadInput, nil, "--watch and --interval cannot be combined with POD or --selector",
		},
		{
			"status of selected pods with an interval",
			[]string{"status", "-n", "shop", "-l", "app=web", "--interval", "2s"},
			exitBadInput, nil, "--watch and --interval cannot be combined with POD or --selector",
		},
		{"no pod is named", []string{"check"}, exitBadInput, nil, "POD or --selector is required"},
		{"unknown pod", []string{"check", "shop/nobody"}, exitBadInput, nil, "NotFound"},
		{
			"a hint for a force-deleted pod",
			[]string{"check", "shop/nobody"},
			exitBadInput, nil,
			"for a force-deleted pod whose sandbox still exists, run rules with --pod shop/nobody " +
				"in the node agent of its node",
		},
		{
			"a kind in upper case",
			[]string{"check", "Deployment/web", "-n", "shop"},
			0,
			[]string{
				"sluice-node-a: rules check --pod shop/web-1",
				"sluice-node-a: rules check --pod shop/web-2",
			},
			"",
		},
		{
			"not a name", []string{"check", "shop/.."}, exitBadInput, nil, `"shop/..": ".." is not a name`,
		},
		{"unknown deployment", []string{"check", "deploy/web"}, exitBadInput, nil, "NotFound"},
		{
			"no pod with the labels",
			[]string{"check", "-l", "app=none"},
			exitBadInput, nil,
			"label selector app=none in namespace default has no running pod",
		},
		{
			"invalid selector",
			[]string{"check", "-l", "a==="},
			exitBadInput, nil, `--selector: "a===" is not a label selector: `,
		},
		{
			"invalid selector after the value of a flag",
			[]string{"check", "-la===", "-n", "shop"},
			exitBadInput, nil, `--selector: "a===" is not a label selector: `,
		},
		{
			"values in the same argument as short flags",
			[]string{"check", "-nshop", "-lapp=web"},
			0,
			[]string{
				"sluice-node-a: rules check --pod shop/web-1",
				"sluice-node-a: rules check --pod shop/web-2",
			},
			"",
		},
		{
			"short flag with its value after the pod",
			[]string{"check", "web-1", "-nshop", "-ojson"},
			0,
			[]string{"sluice-node-a: rules check --pod shop/web-1 -ojson"},
			"",
		},
		{
			"unknown command",
			[]string{"chek", "web"},
			exitBadInput, nil,
			`unknown command "chek" for "kubectl sluice"; did you mean check?; ` +
				"kubectl sluice --help lists the commands\n",
		},
		{
			"unknown command with help",
			[]string{"version", "--help"},
			exitBadInput, nil,
			`unknown command "version" for "kubectl sluice"; kubectl sluice --help lists the commands`,
		},
		{
			"unknown topic of help",
			[]string{"help", "trase"},
			exitBadInput, nil,
			`unknown command "trase" for "kubectl sluice"; did you mean trace?`,
		},
		{
			"unknown shell",
			[]string{"completion", "tcsh"},
			exitBadInput, nil,
			`unknown command "tcsh" for "kubectl sluice completion"`,
		},
		{
			"superfluous argument of completion",
			[]string{"completion", "bash", "x"},
			exitBadInput, nil, `unknown command "x" for "kubectl sluice completion bash"`,
		},
		{
			"several invalid flags of status",
			[]string{"status", "-o", "yaml", "--interval", "0"},
			exitBadInput, nil,
			"kubectl sluice: --output: \"yaml\" is not text or json\n" +
				"kubectl sluice: --interval: 0s is less than 1s\n",
		},
		{
			"several wrong values of status",
			[]string{
				"status", "--watch=zz", "--interval", "5", "--insecure-skip-tls-verify=no", "-o", "yaml",
			},
			exitBadInput, nil,
			"kubectl sluice: --watch: \"zz\" is not true or false\n" +
				"kubectl sluice: --interval: \"5\" is not a duration, such as 5s\n" +
				"kubectl sluice: --insecure-skip-tls-verify: \"no\" is not true or false\n" +
				"kubectl sluice: --output: \"yaml\" is not text or json\n",
		},
		{
			"several wrong values of a command for pods",
			[]string{
				"diff", "--kubeconfig", file + ".not", "--disable-compression=no", "shop//web", "--nft", file + ".not",
			},
			exitBadInput, nil,
			"kubectl sluice: --disable-compression: \"no\" is not true or false\n" +
				"kubectl sluice: --nft: open " + file + ".not: no such file or directory\n" +
				"kubectl sluice: \"shop//web\" is not NAMESPACE/NAME, NAME, KIND/NAME or NAMESPACE/KIND/NAME\n" +
				"kubectl sluice: kubeconfig: stat " + file + ".not: no such file or directory\n",
		},
		{
			"wrong value of a flag of help",
			[]string{"help", "trace", "--disable-compression=no"},
			exitBadInput, nil, `--disable-compression: "no" is not true or false`,
		},
		{
			"missing kubeconfig",
			[]string{"check", "--kubeconfig", file + ".not", "web"},
			exitBadInput, nil, "kubeconfig: stat " + file + ".not: no such file or directory",
		},
		{
			"invalid name",
			[]string{"check", "shop//web"},
			exitBadInput, nil,
			`"shop//web" is not NAMESPACE/NAME`,
		},
		{
			"unknown flag",
			[]string{"check", "--netns", "x", "shop/web-1"},
			exitBadInput, nil,
			"unknown flag --netns before POD",
		},
		{
			"missing local file",
			[]string{"diff", "shop/web-1", "--istio-log", file + ".not"},
			exitBadInput, nil, "--istio-log: ",
		},
		{
			"node without a node agent",
			[]string{"check", "shop/far"},
			exitFailed, nil,
			"no node agent runs on node b",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeCluster()
			code, stdout, stderr := f.sluice(t.Context(), t, strings.NewReader(""), c.args...)
			if code != c.code || !slices.Equal(f.ran, c.ran) || !strings.Contains(stderr, c.error) {
				t.Errorf("exit code %d, ran %q, want %d, %q and the error %q\n%s%s", code, f.ran, c.code,
					c.ran, c.error, stdout, stderr)
			}
		})
	}
}

func TestInputAndExitCodePassThrough(t *testing.T) {
	f := newFakeCluster()
	f.command = func(_ string, args []string, in io.Reader, out, errOut io.Writer) int {
		data, _ := io.ReadAll(in)
		fmt.Fprintf(out, "%d bytes", len(data))
		fmt.Fprintln(errOut, "rules: warning")
		if slices.Contains(args, "shop/web-2") {
			return 1
		}
		return 0
	}
	code, stdout, stderr := f.sluice(t.Context(), t,
		strings.NewReader(strings.Repeat("x", 100_000)), "diff", "deploy/web", "-n", "shop",
		"--istio-log=-")
	if code != 1 || stdout != "100000 bytes100000 bytes" ||
		strings.Count(stderr, "rules: warning") != 2 {
		t.Errorf("exit code %d, %q, %q; want 1, the input and a warning for each of two pods", code,
			stdout, stderr)
	}
}

func TestTraceEndsWithTheSignal(t *testing.T) {
	f := newFakeCluster()
	var started sync.WaitGroup
	started.Add(2)
	f.command = func(_ string, args []string, in io.Reader, out, _ io.Writer) int {
		started.Done()
		_, _ = io.Copy(io.Discard, in) // until the end of the input
		fmt.Fprintf(out, "summary of %s\n", args[3])
		return 0
	}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		started.Wait()
		interrupt()
	}()
	code, stdout, stderr := f.sluice(ctx, t, strings.NewReader(""), "trace", "deploy/web", "-n",
		"shop", "--port", "80")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	slices.Sort(lines)
	if want := []string{
		"shop/web-1: summary of shop/web-1", "shop/web-2: summary of shop/web-2",
	}; code != 0 || !slices.Equal(lines, want) {
		t.Errorf("exit code %d, lines %q; want 0 and %q\n%s", code, lines, want, stderr)
	}
	if want := "sluice-node-a: rules trace --pod shop/web-1 --until-eof --port 80"; !slices.Contains(f.ran, want) {
		t.Errorf("ran %q, want %q", f.ran, want)
	}
}

// commandName is the name with which a process of the test runs the plugin. See TestMain.
const commandName = "kubectl-sluice"

// TestHangUpEndsLikeOtherSignals checks that the plugin ends in order when its terminal hangs up.
func TestHangUpEndsLikeOtherSignals(t *testing.T) {
	// If the test was started with nohup, the plugin would inherit that SIGHUP is ignored.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGHUP)
	defer signal.Stop(handled)
	for _, number := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		f := newFakeCluster()
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "status", "--watch")
		cmd.Args[0] = commandName
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		started := make(chan struct{}) // the plugin may send its queries before Start returns
		f.command = func(string, []string, io.Reader, io.Writer, io.Writer) int {
			<-started
			if err := cmd.Process.Signal(number); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
			return 0
		}
		f.connect(t)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		close(started)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: the plugin ended with %v, want success; output %s", number, err, out.String())
		}
	}
}

// TestWatchEndsWithTheSignal interrupts kubectl sluice status --watch during a query.
func TestWatchEndsWithTheSignal(t *testing.T) {
	f := newFakeCluster()
	ctx, interrupt := context.WithCancel(t.Context())
	f.command = func(string, []string, io.Reader, io.Writer, io.Writer) int {
		interrupt()
		return 0
	}
	if code, stdout, stderr := f.sluice(ctx, t, nil, "status", "--watch"); code != 0 || stderr != "" {
		t.Errorf("exit code %d, want 0 and no error\n%s%s", code, stdout, stderr)
	}
}

// TestStatusOfANodeIsPrintable checks that an agent of a compromised node can neither forge the
// lines of other nodes nor control the terminal.
func TestStatusOfANodeIsPrintable(t *testing.T) {
	s := clusterStatus{Nodes: []nodeStatus{{
		Node: "a", AgentVersion: "v1\nb  yes", Pods: map[string]int{"redirected\x1b[2J": 1},
		Reasons: []string{"ambient: x\nb: \x1b[2J"},
	}}}
	s.addTotals()
	var out strings.Builder
	if err := s.write(&out, false); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 4 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("output %q, want 4 printable lines", out.String())
	}
}

func TestStatusSummarizesTheCluster(t *testing.T) {
	f := newFakeCluster()
	f.pods = append(f.pods, pod("istio-system", "sluice-node-c", "c", "k8s-app=sluice-node"))
	f.nodes = append(f.nodes, "c")
	f.command = func(pod string, _ []string, _ io.Reader, out, _ io.Writer) int {
		if pod == "sluice-node-c" {
			fmt.Fprintln(out,
				`{"version":1,"kind":"Status","node":"c","agentVersion":"v2","time":"2026-01-02T03:04:05Z","ready":false,`+
					`"topics":[{"name":"chain","state":"problem","facts":["no configuration"]}]}`)
			return 1
		}
		fmt.Fprintln(out,
			`{"version":1,"kind":"Status","node":"a","agentVersion":"v1","time":"2026-01-02T03:04:05Z","ready":true,"topics":[],`+
				`"pods":{"redirected":3,"drifted":0},"drifts":{"repaired":2}}`)
		return 0
	}
	code, stdout, stderr := f.sluice(t.Context(), t, nil, "status")
	want := `NODE  READY  AGENT    PODS          DRIFTS      CONFLICTS
a     yes    v1       3 redirected  2 repaired  none
b     no     unknown  none          none        none
c     no     v2       none          none        none
b: the node has no node agent
c: chain: no configuration
the node agents have different versions: 1 v1, 1 v2
1 of 3 nodes are ready; pods: 3 redirected
`
	if code != 1 || stdout != want {
		t.Errorf("exit code %d, want 1; output\n%s%s\nwant\n%s", code, stdout, stderr, want)
	}
	code, stdout, stderr = f.sluice(t.Context(), t, nil, "status", "-o", "json")
	var found clusterStatus
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || code != 1 || found.Ready != 1 ||
		len(found.Nodes) != 3 || found.Kind != "ClusterStatus" {
		t.Errorf("exit code %d, error %v; want 1, and a ClusterStatus with three nodes, one of them ready\n%s%s",
			code, err, stdout, stderr)
	}
}

// TestExamplesAreValid runs the packets of the examples through the parser of rules.
func TestExamplesAreValid(t *testing.T) {
	for line := range strings.Lines(examples) {
		words, err := shellwords.Parse(strings.TrimSpace(line))
		if err != nil {
			continue // a pipe
		}
		if !slices.Contains(words, "explain") {
			continue
		}
		if _, err := rules.ParsePacket(words[len(words)-1]); err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
}
