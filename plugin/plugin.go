package plugin

import (
	"context"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/log"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// An Agent receives log lines and reports, and enrolls pods in ambient mode. All methods except
// Enroll return within a fraction of a second, and their errors may be ignored.
type Agent interface {
	// Write sends a line of the log.
	io.Writer
	// Report sends the result of an ADD.
	Report(agent.Add) error
	// Enroll enrolls a pod in ambient mode, and returns when ztunnel has acknowledged the pod.
	// netns is a descriptor of the pod's network namespace. [source.KindOf] returns the kind of an
	// error: one of package source or of package agent.
	Enroll(
		ctx context.Context, ref source.Ref, addresses []netip.Addr, netns int,
	) (*agent.Enrollment, error)
}

// A Plugin implements the verbs. Its fields are its dependencies. Its methods are safe for
// concurrent use if its fields are.
type Plugin struct {
	// Source returns the source of pods, without sending a request.
	Source func(*config.Config) source.Source
	// Agent returns the client of the node agent, which may not be running.
	Agent func(*config.Config) Agent
	// Backend returns the backend with the given name: see [compat.Choose].
	Backend func(compat.BackendName) (compat.Backend, error)
	// Stdout receives results, Stderr the log.
	Stdout, Stderr io.Writer
	// Now returns the time.
	Now func() time.Time
}

// System returns the plugin of this machine. It reads pods from the node agent, and from the API
// server if the agent gives no answer, and then sends the pod to the agent.
func System() *Plugin {
	return &Plugin{
		Source: func(c *config.Config) source.Source {
			api := source.NewAPIServer(source.Options{
				Kubeconfig: c.Kubeconfig, Timeout: c.APIBudget, RequestTimeout: c.APITryTimeout,
			})
			node := newAgentClient(c)
			return source.Fallback(node, node.ReportPods(api))
		},
		Agent:   func(c *config.Config) Agent { return newAgentClient(c) },
		Backend: compat.Choose,
		Stdout:  os.Stdout, Stderr: os.Stderr,
		Now: time.Now,
	}
}

// newAgentClient returns the client of the node agent that uses the run directory of the
// configuration.
func newAgentClient(c *config.Config) *client.Client {
	return client.New(client.Options{Socket: agent.SocketIn(c.RunDir)})
}

// openLog returns a logger for the configured log, and a function that closes the log.
func (p *Plugin) openLog(c *config.Config) (*zap.Logger, func()) {
	return log.Open(c.Log, p.Stderr, p.Agent(c))
}

// Funcs returns the verbs for package skel. A panic in a verb becomes an error.
func (p *Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    p.withoutPanics(p.Add),
		Check:  p.withoutPanics(p.Check),
		Del:    p.withoutPanics(p.Del),
		GC:     p.withoutPanics(p.GC),
		Status: p.withoutPanics(p.Status),
	}
}
