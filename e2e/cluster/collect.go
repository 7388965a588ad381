package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Collect creates a directory and saves information about the cluster in it: logs of services and
// containers, objects, events, the rulesets of every node and pod, and the nodes' conflists. For a
// virtual machine, it does not save the logs of containers, the rulesets of pods or the conflist.
// Collect continues after errors, and returns them all.
func (c *Cluster) Collect(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.progress.limit/2)
	defer cancel()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	errs := []error{c.copyLogs(filepath.Join(dir, "services"))}
	kubectl := func(name string, args ...string) {
		if len(c.nodes) == 0 {
			return
		}
		cmd := c.nodes[0].Command(ctx,
			append([]string{"kubectl", "--request-timeout=10s"}, args...)...)
		errs = append(errs, saveOutput(filepath.Join(dir, name), cmd))
	}
	kubectl("events.txt", "get", "events", "--all-namespaces",
		"--sort-by=.metadata.creationTimestamp", "--output=wide")
	kubectl("pods.txt", "get", "pods", "--all-namespaces", "--output=wide")
	kubectl("objects.yaml", "get",
		"nodes,pods,daemonsets,deployments,services,endpointslices,configmaps", "--all-namespaces",
		"--output=yaml")
	for _, n := range c.nodes {
		errs = append(errs, collectNode(ctx, n, filepath.Join(dir, n.Name())))
	}
	return errors.Join(errs...)
}

// collectNode saves the information about a node that is available without the API server.
func collectNode(ctx context.Context, n Node, dir string) error {
	errs := []error{os.MkdirAll(dir, 0o755)}
	saveCommand := func(name string, argv ...string) {
		errs = append(errs, saveOutput(filepath.Join(dir, name), n.Command(ctx, argv...)))
	}
	for _, folder := range []string{"/etc/cni/net.d", "/var/log/pods"} {
		if _, err := os.Stat(n.Path(folder)); err == nil {
			errs = append(errs,
				os.CopyFS(filepath.Join(dir, filepath.Base(folder)), os.DirFS(n.Path(folder))))
		}
	}
	saveCommand("processes.txt", "ps", "axf", "-o", "pid,ppid,user,etime,rss,args")
	saveCommand("containers.txt", "crictl", "ps", "--all")
	saveCommand("ruleset.txt", "sh", "-c", rulesetScript)
	entries, err := os.ReadDir(n.Path("/run/netns"))
	for _, entry := range entries {
		saveCommand("ruleset-"+entry.Name()+".txt", "nsenter",
			"--net=/run/netns/"+entry.Name(), "sh", "-c", rulesetScript)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}

// rulesetScript prints the addresses, routes and rules of a network namespace. Legacy tables are
// read only if they exist, because reading creates them.
const rulesetScript = `
	ip address; ip rule; ip -6 rule; ip route show table all
	nft list ruleset
	for family in ip ip6; do
		if [ -s /proc/net/${family}_tables_names ]; then ${family}tables-legacy-save; fi
	done`

// saveOutput runs a command and writes its output to a file, even if the command fails.
func saveOutput(file string, cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("save %s: %w", filepath.Base(file), err)
	}
	return errors.Join(os.WriteFile(file, out, 0o644), err)
}

// collectFailed is Collect for a cluster whose start failed, into a new directory in parent. It
// never returns nil: without another error, the returned error only names the directory.
func (c *Cluster) collectFailed(parent string) error {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, c.progress.name+"-")
	if err != nil {
		return err
	}
	return errors.Join(fmt.Errorf("logs are in %s", dir), c.Collect(dir))
}
