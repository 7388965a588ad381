package agent

import (
	"context"
	"path/filepath"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// preparePods creates the pod cache and the auditor, which the server and ambient mode use too.
func (a *Agent) preparePods(api *apiclient.Client) error {
	v := a.options.Settings
	o, err := audit.FromSettings(v)
	if err != nil {
		return err
	}
	a.podCache, err = podcache.New(podcache.Options{
		Client: api, NodeName: v.Text("NODE_NAME"), Fetch: a.podFetcher,
		WatchFailed: a.reportUnwatched, Changed: a.podChanged, NamespaceChanged: a.namespaceChanged,
	})
	if err != nil {
		return err
	}
	o.Connections.ProcDir = sandboxOptions(v).ProcDir
	o.Decide, o.Backend, o.Bypass = &a.config.Decide, a.config.Backend, a.bypass
	o.Records, o.Repairs = record.In(a.config.RunDir), repair.StoreIn(a.config.RunDir)
	o.Pods, o.Cluster, o.FindSandboxes = a.podCache, a.cluster, sandbox.New(sandboxOptions(v)).Find
	o.Open, o.ProcessorTime = audit.Open, audit.ProcessorTime
	o.Listen, o.RuleLock = watch.Subscribe, a.ruleLock
	o.Metrics, o.Log = a.metrics, a.options.Log.Logger
	if a.config.Decide.Ambient != nil {
		o.Ambient = func(ctx context.Context, uid string) (*audit.AmbientPod, error) {
			return a.ambient.pods.Rules(ctx, uid)
		}
	}
	a.auditor = audit.New(o)
	return nil
}

// sandboxOptions returns the options for locating sandboxes.
func sandboxOptions(v settings.Values) sandbox.Options {
	o := sandbox.Options{
		RunDir: v.Text("CNI_AGENT_RUN_DIR"), ResultDirs: resultDirs(v),
		HostNetnsDir: v.Text("SLUICE_HOST_NETNS_DIR"), NetnsDir: v.Text("SLUICE_MOUNTED_NETNS_DIR"),
	}
	if v.Bool("SLUICE_SEARCH_PROC") {
		o.ProcDir = v.Text("SLUICE_MOUNTED_PROC_DIR")
	}
	return o
}

// resultDirs returns the directories where the runtime caches results of plugins.
func resultDirs(v settings.Values) []string {
	cache := v.Text("SLUICE_MOUNTED_CACHE_DIR")
	return []string{filepath.Join(cache, "results"), filepath.Join(cache, "cache", "results")}
}

// podChanged tells the auditor and ambient mode that a pod has changed.
func (a *Agent) podChanged(namespace, name string) {
	a.auditor.Changed(namespace, name)
	if a.ambient != nil {
		a.ambient.pods.Changed(namespace, name)
	}
}

// namespaceChanged tells ambient mode that a namespace has changed, because the labels of the
// namespace may change the mode of its pods.
func (a *Agent) namespaceChanged(name string) {
	if a.ambient != nil {
		a.ambient.pods.Changed(name, "")
	}
}
