package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"sync/atomic"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// CNIVersion is that of the specification that all plugins are configured with.
const CNIVersion = "1.0.0"

// A Plugin is a CNI plugin at the end of a chain.
type Plugin struct {
	Name string
	Kind report.Kind
	// Path is that of the executable.
	Path string
	// Config are the fields of the plugin's own in its configuration.
	Config map[string]any
	// Env is added to the environment.
	Env []string
	// Node is the network namespace of the node.
	Node *netns.NS
}

// A Pod is what CNI_ARGS says of a sandbox.
type Pod struct {
	Namespace, Name, UID string
	// Annotations are passed to the plugin as containerd does if it is configured for that; nil for
	// a runtime that does not.
	Annotations map[string]string
}

// attachments counts them, so that each has an id of its own.
var attachments atomic.Int64

// Add is the plugin in a contest of ADD for the pod, each time in a namespace of its own, which has
// rules afterwards if and only if the pod is redirected.
func (p *Plugin) Add(pod Pod, redirected bool) Contestant {
	return Contestant{Name: p.Name, Kind: p.Kind, Prepare: func() (Task, error) {
		a, err := NewAttachment(int(attachments.Add(1)))
		if err != nil {
			return Task{}, err
		}
		undo := func() {
			// What is kept of the attachment shall not pile up.
			_ = p.command("DEL", pod, a).Run()
			_ = a.NS.Close()
		}
		task := p.command("ADD", pod, a).Task()
		task.Check, task.Undo = func() error { return redirects(a.NS, redirected) }, undo
		return task, nil
	}}
}

// Del is the plugin in a contest of DEL for the pod, each time after ADD.
func (p *Plugin) Del(pod Pod) Contestant {
	return Contestant{Name: p.Name, Kind: p.Kind, Prepare: func() (Task, error) {
		a, err := NewAttachment(int(attachments.Add(1)))
		if err != nil {
			return Task{}, err
		}
		undo := func() { _ = a.NS.Close() }
		if err := p.command("ADD", pod, a).Run(); err != nil {
			undo()
			return Task{}, err
		}
		task := p.command("DEL", pod, a).Task()
		task.Undo = undo
		return task, nil
	}}
}

// command is a call of the plugin as containerd makes it.
func (p *Plugin) command(verb string, pod Pod, a *Attachment) *Command {
	config := map[string]any{"cniVersion": CNIVersion, "name": "bench", "type": p.Name, "prevResult": a.PrevResult()}
	maps.Copy(config, p.Config)
	if pod.Annotations != nil {
		config["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": pod.Annotations}
	}
	stdin, err := json.Marshal(config)
	if err != nil {
		panic(err) // maps of strings
	}
	env := append(os.Environ(),
		"CNI_COMMAND="+verb, "CNI_CONTAINERID="+a.ContainerID, "CNI_NETNS="+a.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s",
			pod.Namespace, pod.Name, a.ContainerID, pod.UID))
	return &Command{Path: p.Path, Env: append(env, p.Env...), Stdin: stdin, In: p.Node}
}
