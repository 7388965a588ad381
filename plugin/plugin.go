package plugin

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// A Source is where pods are read from.
type Source interface {
	source.Source
	// Ready tells whether a question could be answered now.
	Ready(ctx context.Context) error
	// Close lets go of connections.
	Close()
}

// A Plugin has the verbs, and the effects that they have on the world. Its methods are safe for concurrent use if its fields are.
type Plugin struct {
	// Source returns what pods are read from. It does not ask anybody yet.
	Source func(*config.Config) Source
	// Backend returns the backend of an engine.
	Backend func(compat.Engine) (compat.Backend, error)
	// Stdout gets results, and Stderr the log.
	Stdout, Stderr io.Writer
	// Now is the time.
	Now func() time.Time
}

// System returns the plugin of this machine.
func System() *Plugin {
	return &Plugin{
		Source: func(c *config.Config) Source {
			return source.NewAPIServer(source.Options{Kubeconfig: c.Kubeconfig, Budget: c.APIBudget, Try: c.APITryTimeout})
		},
		Backend: compat.Choose,
		Stdout:  os.Stdout, Stderr: os.Stderr,
		Now: time.Now,
	}
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
