package plugin

import (
	"io"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/log"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// An Agent is told what happens. It never fails its user, nor makes him wait for long.
type Agent interface {
	// Write takes a line of the log.
	io.Writer
	// Tell takes what became of an ADD.
	Tell(agent.Add) error
}

// A Plugin has the verbs, and the effects that they have on the world. Its methods are safe for concurrent use if its fields are.
type Plugin struct {
	// Source returns what pods are read from. It does not ask anybody yet.
	Source func(*config.Config) source.Source
	// Agent returns the node agent, whether it is there or not.
	Agent func(*config.Config) Agent
	// Backend returns the backend of an engine.
	Backend func(compat.Engine) (compat.Backend, error)
	// Stdout gets results, and Stderr the log.
	Stdout, Stderr io.Writer
	// Now is the time.
	Now func() time.Time
}

// System returns the plugin of this machine. Pods come from the node agent, or else from the API server.
func System() *Plugin {
	return &Plugin{
		Source: func(c *config.Config) source.Source {
			api := source.NewAPIServer(source.Options{Kubeconfig: c.Kubeconfig, Budget: c.APIBudget, Try: c.APITryTimeout})
			return source.First(agentOf(c), api)
		},
		Agent:   func(c *config.Config) Agent { return agentOf(c) },
		Backend: compat.Choose,
		Stdout:  os.Stdout, Stderr: os.Stderr,
		Now: time.Now,
	}
}

func agentOf(c *config.Config) *client.Client {
	return client.New(client.Options{Socket: agent.SocketIn(c.RunDir)})
}

// openLog opens the log of a configuration, and returns a function that closes it.
func (p *Plugin) openLog(c *config.Config) (*zap.Logger, func()) {
	core, closeLog := log.Open(c.Log, p.Stderr, p.Agent(c))
	return zap.New(core, zap.ErrorOutput(zapcore.Lock(zapcore.AddSync(p.Stderr)))), closeLog
}

// Funcs returns the verbs for package skel. A panic in one becomes an error.
func (p *Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    p.guarded(p.Add),
		Check:  p.guarded(p.Check),
		Del:    p.guarded(p.Del),
		GC:     p.guarded(p.GC),
		Status: p.guarded(p.Status),
	}
}
