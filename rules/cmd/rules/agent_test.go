package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/servetest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// startAgentWithPods starts a node agent that locates the pods, which are in the namespace default,
// by name. It returns the agent's run directory.
func startAgentWithPods(t *testing.T, pods map[string]agent.Location) string {
	t.Helper()
	return startAgent(t, serve.Options{
		Locate: func(_ context.Context, namespace, name string) (agent.Location, error) {
			l, found := pods[name]
			if !found || namespace != "default" {
				return l, source.WithKind(source.NotFound, errors.New("there is no such pod"))
			}
			l.Namespace, l.Name = namespace, name
			return l, nil
		},
	})
}

// startAgent starts a node agent, and returns its run directory.
func startAgent(t *testing.T, o serve.Options) string {
	t.Helper()
	dir := t.TempDir()
	o.Socket = agent.SocketIn(dir)
	server := serve.New(servetest.Fill(o))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	rulestest.Eventually(t, "the agent listens", server.Listening)
	return dir
}

// runCommand runs a command line with the run directory of an agent.
func runCommand(runDir, stdin string, args ...string) (code int, stdout, stderr string) {
	return runCommandOn(thisSystem(), runDir, stdin, args...)
}

// runCommandOn is like runCommand, with another system.
func runCommandOn(s *system, runDir, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	s.stdin, s.stdout, s.stderr = strings.NewReader(stdin), &out, &problems
	s.variable = func(name string) (string, bool) { return runDir, name == "CNI_AGENT_RUN_DIR" }
	code = run(s, args)
	return code, out.String(), problems.String()
}

// meshPod applies the rules of a mesh pod to the namespace, and returns the location of the pod.
func meshPod(t *testing.T, ns *netns.NS) agent.Location {
	t.Helper()
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	r.OutboundExcludePorts = rules.Singles[uint16](5432)
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backend.Apply(ns, rules.MustCompile(r), compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	return agent.Location{
		UID: "1", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), Decision: "redirect",
		Reason: "mesh-pod", Backend: "nft",
		Redirect: &r,
	}
}
