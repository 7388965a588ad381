package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

// statusTime limits the request for the status, which the agent answers from memory.
const statusTime = 5 * time.Second

func newStatusCommand(s *system) *cobra.Command {
	in := &inputs{sections: []section{sectionRunDir, sectionOutput}}
	return s.command("status [FLAG]...", "print the status of this node, and remedies", in,
		func(p *parameters, _ []string) error {
			ctx, cancel := context.WithTimeout(context.Background(), statusTime)
			defer cancel()
			found, err := agent.Caller{Socket: agent.SocketIn(p.runDir)}.Status(ctx)
			switch {
			case err == nil:
			case agent.IsNotRunning(err):
				return systemError(fmt.Errorf("status: no node agent answers here: %w; "+
					"see whether the pod of the DaemonSet sluice-node runs on this node "+
					"(kubectl get pods -A -l k8s-app=sluice-node -o wide), "+
					"and name the agent's directory with --cni-agent-run-dir", err))
			case agent.IsTimeout(ctx, err):
				return systemError(fmt.Errorf("status: the node agent does not answer within %v; "+
					"the kubelet restarts it if it is stuck", statusTime))
			default:
				return systemError(fmt.Errorf("status: node agent: %w", err))
			}
			if err := s.print(s.statusText(found), statusDocumentOf(found)); err != nil {
				return err
			}
			if !found.Healthy() {
				return failure{code: exitDifferent}
			}
			return nil
		})
}

// A statusDocument is the answer of the node agent. The field "version" is the version of the JSON
// form, so the agent's version is in another field.
type statusDocument struct {
	Node               string              `json:"node"`
	AgentVersion       string              `json:"agentVersion"`
	Time               time.Time           `json:"time"`
	Ready              bool                `json:"ready"`
	Topics             []agent.Topic       `json:"topics"`
	Pods               map[string]int      `json:"pods,omitempty"`
	Drifts             map[string]int      `json:"drifts,omitempty"`
	ConflictingWriters map[string]int      `json:"conflictingWriters,omitempty"`
	Errors             []agent.LoggedError `json:"errors,omitempty"`
}

func (statusDocument) kind() string { return "Status" }

// statusDocumentOf returns the document of a status.
func statusDocumentOf(s *agent.Status) statusDocument {
	return statusDocument{
		s.Node, s.Version, s.Time, s.Ready, append([]agent.Topic{}, s.Topics...), s.Pods, s.Drifts,
		s.ConflictingWriters, s.Errors,
	}
}

// topicColor returns the color of a state.
func topicColor(state agent.TopicState) color.Code {
	return cmp.Or(map[agent.TopicState]color.Code{
		agent.TopicOK: color.Green, agent.TopicProblem: color.Red, agent.TopicOff: color.Bold,
	}[state], color.Yellow)
}

// statusText formats the status for people.
func (s *system) statusText(found *agent.Status) string {
	verdict, code := "ready", color.Green
	if !found.Ready {
		verdict, code = "not ready", color.Red
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, "node %s: %s (agent %s, %s)\n", rules.Printable(found.Node),
		s.paint(code, verdict), rules.Printable(found.Version), timeText(found.Time))
	for _, t := range found.Topics {
		s.writeTopic(b, t)
	}
	if len(found.Errors) > 0 {
		fmt.Fprintf(b, "latest errors\n")
	}
	for _, e := range found.Errors {
		line := e.Message
		if e.Error != "" {
			line += ": " + e.Error
		}
		fmt.Fprintf(b, "  %s  %-5s  %s%s\n", timeText(e.Last), rules.Printable(e.Level),
			rules.Printable(line), repetitionText(e))
	}
	return b.String()
}

// writeTopic writes a topic, with each fact on a line.
func (s *system) writeTopic(b *strings.Builder, t agent.Topic) {
	facts := t.Facts
	if len(facts) == 0 {
		facts = []string{""}
	}
	state := s.paint(topicColor(t.State),
		fmt.Sprintf("%-7s", rules.Printable(string(t.State))))
	for i, fact := range facts {
		if i > 0 {
			state = fmt.Sprintf("%-7s", "")
			t.Name = ""
		}
		fmt.Fprintln(b,
			strings.TrimRight(fmt.Sprintf("  %s  %-7s  %s", state, rules.Printable(t.Name),
				rules.Printable(fact)), " "))
	}
	if t.Next != "" {
		fmt.Fprintf(b, "  %-7s  %-7s  next: %s\n", "", "", rules.Printable(t.Next))
	}
}

// timeText returns the text of a time.
func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// repetitionText returns the number of occurrences of an error that has occurred several times.
func repetitionText(e agent.LoggedError) string {
	if e.Count < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d times since %s)", e.Count, timeText(e.First))
}
