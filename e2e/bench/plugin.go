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

// CNIVersion is the version of the specification in all configurations.
const CNIVersion = "1.0.0"

// A Plugin is a CNI plugin at the end of a chain of plugins.
type Plugin struct {
	Name string
	Kind report.Kind
	// Path is the path of the executable.
	Path string
	// Config contains the fields of the configuration that are specific to the plugin.
	Config map[string]any
	// Env is added to the environment.
	Env []string
	// Node is the network namespace of the node.
	Node *netns.NS
}

// A Pod is a pod, as a container runtime describes it to plugins.
type Pod struct {
	Namespace, Name, UID string
	// Annotations are passed to the plugin as by a containerd that is configured to pass them. Nil
	// stands for a runtime that does not pass them.
	Annotations map[string]string
}

// attachments counts the attachments, so that each has a unique container ID.
var attachments atomic.Int64

// Add returns a candidate that runs ADD for the pod, each time in a new namespace. ADD must
// redirect the pod if redirected is true, and must not redirect it otherwise.
func (p *Plugin) Add(pod Pod, redirected bool) Candidate {
	return Candidate{Name: p.Name, Kind: p.Kind, Prepare: func() (Task, error) {
		a, err := NewAttachment(int(attachments.Add(1)))
		if err != nil {
			return Task{}, err
		}
		task := p.command("ADD", pod, a).Task()
		task.Check = func() error { return checkRedirected(a.NS, redirected) }
		task.Undo = func() {
			// DEL removes the plugin's record of the attachment.
			_ = p.command("DEL", pod, a).Run()
			_ = a.NS.Close()
		}
		return task, nil
	}}
}

// Del returns a candidate that runs DEL for the pod, each time after ADD.
func (p *Plugin) Del(pod Pod) Candidate {
	return Candidate{Name: p.Name, Kind: p.Kind, Prepare: func() (Task, error) {
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

// command returns a call of the plugin as containerd makes it.
func (p *Plugin) command(verb string, pod Pod, a *Attachment) *Command {
	config := map[string]any{
		"cniVersion": CNIVersion, "name": "bench", "type": p.Name, "prevResult": a.PrevResult(),
	}
	maps.Copy(config, p.Config)
	if pod.Annotations != nil {
		config["runtimeConfig"] = map[string]any{
			"io.kubernetes.cri.pod-annotations": pod.Annotations,
		}
	}
	stdin, err := json.Marshal(config)
	if err != nil {
		panic(err) // cannot happen: all values can be encoded
	}
	env := append(os.Environ(),
		"CNI_COMMAND="+verb, "CNI_CONTAINERID="+a.ContainerID, "CNI_NETNS="+a.Path(),
		"CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;"+
			"K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s",
			pod.Namespace, pod.Name, a.ContainerID, pod.UID))
	return &Command{Path: p.Path, Env: append(env, p.Env...), Stdin: stdin, NS: p.Node}
}
