// Package servetest helps tests to start a server of package serve.
package servetest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Fill returns the options, and replaces each required function that is nil with one that does
// nothing.
func Fill(o serve.Options) serve.Options {
	if o.Policy == nil {
		o.Policy = func() json.RawMessage { return nil }
	}
	if o.Locate == nil {
		o.Locate = func(context.Context, string, string) (agent.Location, error) {
			return agent.Location{}, source.WithKind(source.Unavailable,
				errors.New("this test does not locate pods"))
		}
	}
	if o.Status == nil {
		o.Status = func() any { return nil }
	}
	if o.Log == nil {
		o.Log = func([]byte) {}
	}
	if o.Added == nil {
		o.Added = func(agent.Add) {}
	}
	if o.PodFetched == nil {
		o.PodFetched = func([]byte) error { return nil }
	}
	if o.Answered == nil {
		o.Answered = func(serve.Outcome, time.Duration) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return o
}
