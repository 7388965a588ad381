package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientexec "k8s.io/client-go/util/exec"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
)

const (
	// maxConcurrent is the maximum number of node agents that are queried at the same time.
	maxConcurrent = 16
	// agentTimeout is the time limit of each query.
	agentTimeout = 10 * time.Second
)

// A nodeStatus is the status of a node.
type nodeStatus struct {
	Node  string `json:"node"`
	Ready bool   `json:"ready"`
	// Reasons name the problems of the node, or say why its state is unknown.
	Reasons      []string       `json:"reasons,omitempty"`
	AgentPod     string         `json:"agentPod,omitempty"`
	AgentVersion string         `json:"agentVersion,omitempty"`
	Pods         map[string]int `json:"pods,omitempty"`
	Drifts       map[string]int `json:"drifts,omitempty"`
	Conflicts    map[string]int `json:"conflictingWriters,omitempty"`
}

// A clusterStatus is the output of status.
type clusterStatus struct {
	Version  int            `json:"version"`
	Kind     string         `json:"kind"`
	Nodes    []nodeStatus   `json:"nodes"`
	Ready    int            `json:"ready"`
	Versions map[string]int `json:"agentVersions"`
	Pods     map[string]int `json:"pods"`
	Drifts   map[string]int `json:"drifts"`
}

func (o *options) newStatus() *cobra.Command {
	var (
		watch    bool
		interval time.Duration
		output   string
	)
	cmd := &cobra.Command{
		Use:   "status [POD]",
		Short: "print the state of all node agents, or of the rules of pods",
		Long: `Without POD, print a line for each node: ready or not, the version of its node agent, mesh pods by state, drift since the agent
started, and conflicting writers. The problems of the nodes follow. With POD, print the output of rules check for the pod. With
--output json, print one object, and with --watch one object per line; kubectl sluice help json-schema describes it.

Without POD, the exit code is 0 if all nodes are ready and 1 if not. It is 0 if --watch is interrupted.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return badInput("status: at most one POD")
			}
			return nil
		},
		ValidArgsFunction: o.completePod,
		// RunE reports the wrong values of flags together with other faults.
		PersistentPreRun: func(*cobra.Command, []string) { o.started = true },
		RunE: func(cmd *cobra.Command, args []string) error {
			ofPods := len(args) == 1 || o.selector != ""
			faults := o.flagFaults
			if output != "text" && output != "json" {
				faults = append(faults, badInput("--output: %q is not text or json", output))
			}
			if interval < time.Second {
				faults = append(faults, badInput("--interval: %v is less than 1s", interval))
			}
			if len(args) == 1 && o.selector != "" {
				faults = append(faults, badInput("status: POD and --selector cannot be combined"))
			}
			if ofPods && (watch || cmd.Flags().Changed("interval")) {
				faults = append(faults, badInput(
					"status: --watch and --interval cannot be combined with POD or --selector"))
			}
			switch {
			case len(faults) > 0:
				return errors.Join(faults...)
			case ofPods:
				target := strings.Join(args, "") // empty with --selector
				return o.runVerb(cmd.Context(), "check", target, []string{"--output", output})
			}
			return o.status(cmd.Context(), output == "json", watch, interval)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false,
		"repeat until interrupted, or until the API server returns an error")
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Second,
		"time between two repetitions of --watch, at least 1s")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	o.check(cmd.Flags())
	return cmd
}

func (o *options) status(ctx context.Context, asJSON, watch bool, interval time.Duration) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	for {
		status, err := o.clusterStatus(ctx, c)
		if watch && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := status.write(o.streams.Out, asJSON); err != nil {
			return err
		}
		if !watch {
			if status.Ready < len(status.Nodes) {
				return clientexec.CodeExitError{
					Err:  fmt.Errorf("%d of %d nodes are ready", status.Ready, len(status.Nodes)),
					Code: 1,
				}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
		if !asJSON {
			fmt.Fprintln(o.streams.Out)
		}
	}
}

// clusterStatus queries the node agents of all nodes. It omits nodes with another operating system
// than Linux, on which the chart runs no agent.
func (o *options) clusterStatus(ctx context.Context, c cluster) (clusterStatus, error) {
	var nodes corev1.NodeList
	if err := c.list(ctx, "nodes", "", metav1.ListOptions{}, &nodes); err != nil {
		return clusterStatus{}, fmt.Errorf("list nodes: %w", err)
	}
	nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool {
		system := n.Labels[corev1.LabelOSStable]
		return system != "" && system != string(corev1.Linux)
	})
	agents, err := o.agents(ctx, c, "")
	if err != nil {
		return clusterStatus{}, err
	}
	status := clusterStatus{
		Version: jsonVersion, Kind: clusterStatusKind,
		Nodes: make([]nodeStatus, len(nodes.Items)),
	}
	group := new(errgroup.Group)
	group.SetLimit(maxConcurrent)
	for i := range nodes.Items {
		group.Go(func() error {
			status.Nodes[i] = o.nodeStatus(ctx, c, nodes.Items[i].Name, agents)
			return nil
		})
	}
	_ = group.Wait()
	slices.SortFunc(status.Nodes, func(a, b nodeStatus) int {
		return strings.Compare(a.Node, b.Node)
	})
	status.addTotals()
	return status, ctx.Err()
}

// nodeStatus queries the node agent of a node.
func (o *options) nodeStatus(
	ctx context.Context, c cluster, node string, agents []corev1.Pod,
) nodeStatus {
	status := nodeStatus{Node: node}
	found := agentPod(agents, node)
	if found == nil {
		status.Reasons = []string{"the node has no node agent"}
		return status
	}
	if status.AgentPod = found.Name; found.Status.Phase != corev1.PodRunning {
		status.Reasons = []string{fmt.Sprintf("the node agent is not running: phase %s",
			found.Status.Phase)}
		return status
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var out, errOut bytes.Buffer
	err := c.exec(ctx, found, nil, &out, &errOut, "rules", "status", "--output", "json")
	if ctx.Err() != nil { // the command may still write its output
		status.Reasons = []string{fmt.Sprintf("unknown: rules status in the node agent: %v",
			cmp.Or(err, ctx.Err()))}
		return status
	}
	answer, decodeErr := decodeStatus(out.Bytes())
	if decodeErr != nil {
		status.Reasons = []string{fmt.Sprintf("unknown: rules status in the node agent: %v %s",
			cmp.Or(err, decodeErr), firstLine(errOut.String()))}
		return status
	}
	status.AgentVersion, status.Ready, status.Pods = answer.Version, answer.Ready, answer.Pods
	status.Drifts, status.Conflicts = answer.Drifts, answer.ConflictingWriters
	for _, t := range answer.Topics {
		if t.State == agent.TopicProblem {
			status.Reasons = append(status.Reasons,
				fmt.Sprintf("%s: %s", t.Name, strings.Join(t.Facts, "; ")))
		}
	}
	return status
}

// agentPod returns the pod of the node agent on a node, or nil if there is none. It ignores pods
// that are being deleted. If there are several, for example because the kubelet has evicted one, a
// running pod takes precedence, and then a pod that has not ended.
func agentPod(agents []corev1.Pod, node string) *corev1.Pod {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.Status.Phase == corev1.PodRunning:
			return 0
		case isActive(p):
			return 1
		}
		return 2
	}
	var best *corev1.Pod
	for i := range agents {
		p := &agents[i]
		if p.Spec.NodeName != node || p.DeletionTimestamp != nil {
			continue
		}
		if best == nil || rank(p) < rank(best) {
			best = p
		}
	}
	return best
}

// decodeStatus decodes the output of rules status. In this output the field agentVersion is the
// version of the agent, and the field version is the version of the format.
func decodeStatus(output []byte) (agent.Status, error) {
	var answer struct {
		agent.Status
		Format  json.RawMessage `json:"version"` // hides the field of Status
		Version *string         `json:"agentVersion"`
	}
	err := json.Unmarshal(output, &answer)
	if err == nil && answer.Version == nil {
		err = errors.New("agentVersion is missing")
	}
	if err != nil {
		return agent.Status{}, err
	}
	answer.Status.Version = *answer.Version
	return answer.Status, nil
}

func firstLine(output string) string {
	line, _, _ := strings.Cut(output, "\n")
	return line
}

// addTotals sets the totals of the cluster from the nodes.
func (s *clusterStatus) addTotals() {
	s.Versions, s.Pods, s.Drifts = map[string]int{}, map[string]int{}, map[string]int{}
	add := func(total, counts map[string]int) {
		for key, n := range counts {
			total[key] += n
		}
	}
	for _, n := range s.Nodes {
		if n.Ready {
			s.Ready++
		}
		if n.AgentVersion != "" {
			s.Versions[n.AgentVersion]++
		}
		add(s.Pods, n.Pods)
		add(s.Drifts, n.Drifts)
	}
}

func (s *clusterStatus) write(to io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(to, s)
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tREADY\tAGENT\tPODS\tDRIFTS\tCONFLICTS")
	for _, n := range s.Nodes {
		ready := "no"
		if n.Ready {
			ready = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Node, ready,
			rules.Printable(cmp.Or(n.AgentVersion, "unknown")), countsText(n.Pods),
			countsText(n.Drifts), countsText(n.Conflicts))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		for _, r := range n.Reasons {
			fmt.Fprintf(to, "%s: %s\n", n.Node, rules.Printable(r))
		}
	}
	if len(s.Versions) > 1 {
		fmt.Fprintf(to, "the node agents have different versions: %s\n", countsText(s.Versions))
	}
	_, err := fmt.Fprintf(to, "%d of %d nodes are ready; pods: %s\n", s.Ready, len(s.Nodes),
		countsText(s.Pods))
	return err
}

// countsText returns counts as text, for example "2 drifted, 5 redirected", without zeros.
func countsText(counts map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] != 0 {
			words = append(words, strconv.Itoa(counts[name])+" "+name)
		}
	}
	return rules.Printable(cmp.Or(strings.Join(words, ", "), "none"))
}
