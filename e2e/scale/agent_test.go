package scale

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/agent/credential"
	"github.com/sluice-mesh/sluice/install/agent/retire"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// An agent is the part of a node agent that sends requests to the API server.
type agent struct {
	cluster   *cluster.Client
	identity  *credential.Monitor
	decider   *retire.Decider
	publisher *token.Publisher
	fetch     *source.APIServer
	pods      *podcache.Cache
}

// newAgent returns the agent of a node, configured as in sluice-node. The agent's
// kubeconfig is in dir.
func newAgent(server *apiservertest.Server, m *meter, node, dir string) (*agent, error) {
	a := &agent{}
	options := apiclient.Options{
		Server: server.URL(), TokenFile: server.TokenFile(), CAFile: server.CAFile(),
		UserAgent: "sluice-node/v0.0.0", Dial: m.dial,
	}
	kubeconfig := filepath.Join(dir, node)
	// Polling is used instead of inotify, because the number of inotify instances per user is
	// limited.
	a.publisher = token.New(token.Options{Options: options, Kubeconfig: kubeconfig, Poll: true})
	a.identity = credential.New(credential.Options{
		TokenFile: options.TokenFile, CAFile: options.CAFile,
		Record:  filepath.Join(dir, node+".exits"),
		Changed: func(credential.Status) { a.publisher.Check() },
	})
	options.Outcome = a.identity.RecordResponse
	api, err := apiclient.New(options)
	if err != nil {
		return nil, err
	}
	a.cluster = cluster.New(api)
	a.decider = retire.New(retire.Options{
		Client: a.cluster, NodeName: node, DaemonSet: cluster.Name{
			Namespace: apiservertest.Namespace, Name: apiservertest.DaemonSet,
		},
	})
	a.fetch = source.NewAPIServer(source.Options{Kubeconfig: kubeconfig, Dial: m.dial})
	a.pods, err = podcache.New(podcache.Options{Client: api, NodeName: node, Fetch: a.fetch})
	return a, err
}

// run runs the agent until ctx is done, and then checks that it decides to keep the plugin
// installed.
func (a *agent) run(ctx context.Context) error {
	defer a.cluster.Close()
	defer a.fetch.Close()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background, workers sync.WaitGroup
	background.Go(func() { a.pods.Run(serving) })
	background.Go(func() { a.decider.Run(serving) })
	workers.Go(func() { a.publisher.Run(ctx) })
	failed := make(chan error, 1)
	workers.Go(func() { failed <- a.identity.Run(ctx) })
	workers.Wait()
	err := <-failed
	if err == nil {
		if v := a.decider.Decide(context.WithoutCancel(ctx)); v.Remove {
			err = fmt.Errorf("the agent decided to uninstall the plugin: %s", v.Reason)
		}
	}
	stop()
	background.Wait()
	return err
}
