package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Folders of a node with the pods that its kubelet runs without being told by an API server, and
// with those that were stopped.
const (
	manifests        = kubernetesDir + "/manifests"
	stoppedManifests = kubernetesDir + "/stopped"
)

// isUnit tells the services that systemd runs from those that are pods.
func isUnit(service string) bool { return service == Kubelet || service == Containerd }

// StopService implements Node. The services of the control plane are static pods: without its
// manifest, the kubelet ends one. kube-proxy is a DaemonSet's, which runs on every node.
func (n *kindNode) StopService(ctx context.Context, service string) error {
	if isUnit(service) {
		_, err := n.run(ctx, "systemctl", "stop", service)
		return err
	}
	if service == Proxy {
		return fmt.Errorf("stop %s on %s: it is a pod of a DaemonSet", service, n.name)
	}
	if err := n.move(service, manifests, stoppedManifests); err != nil {
		return fmt.Errorf("stop %s on %s: %w", service, n.name, err)
	}
	return n.cluster.steps.reach(ctx, service+" is stopped", func(ctx context.Context) error {
		id, err := n.run(ctx, "crictl", "pods", "--quiet", "--state=ready", "--namespace=kube-system", "--name=^"+service+"-")
		if err != nil || id == "" {
			return err
		}
		// The kubelet would give it half a minute, and ends none at all if it has not heard from
		// the API server since it was started.
		if ids := n.containers(ctx, service); len(ids) > 0 {
			_, err = n.run(ctx, append([]string{"crictl", "stop", "--timeout=2"}, ids...)...)
		}
		_, stopped := n.run(ctx, append([]string{"crictl", "stopp"}, strings.Fields(id)...)...)
		return errors.Join(errors.New("its pod was there"), err, stopped)
	})
}

// StartService implements Node.
func (n *kindNode) StartService(ctx context.Context, service string) error {
	if isUnit(service) {
		_, err := n.run(ctx, "systemctl", "start", "--no-block", service)
		return err
	}
	if service == Proxy {
		return nil
	}
	if err := n.move(service, stoppedManifests, manifests); err != nil {
		return fmt.Errorf("start %s on %s: %w", service, n.name, err)
	}
	return nil
}

// move moves a service's manifest. No error if it is moved already.
func (n *kindNode) move(service, from, to string) error {
	name := service + ".yaml"
	if err := os.MkdirAll(n.Path(to), 0o700); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(n.Path(from), name), filepath.Join(n.Path(to), name))
	if _, there := os.Stat(filepath.Join(n.Path(to), name)); errors.Is(err, fs.ErrNotExist) && there == nil {
		return nil
	}
	return err
}

// containers are those of a service that run.
func (n *kindNode) containers(ctx context.Context, service string) []string {
	out, err := n.run(ctx, "crictl", "ps", "--quiet", "--name=^"+service+"$")
	if err != nil {
		return nil
	}
	return strings.Fields(out)
}

// KillService implements Node. A container is started again by the kubelet, which waits ten seconds
// when that happens often.
func (n *kindNode) KillService(ctx context.Context, service string) error {
	pid, err := n.servicePID(ctx, service)
	if err != nil {
		return fmt.Errorf("kill %s: %w", service, err)
	}
	if _, err := n.run(ctx, "kill", "-KILL", pid); err != nil {
		return fmt.Errorf("kill %s: %w", service, err)
	}
	return n.cluster.steps.reach(ctx, service+" is killed", func(context.Context) error {
		if _, err := os.Stat(filepath.Join(n.Path("/proc"), pid, "exe")); err == nil {
			return errors.New("its process is there")
		}
		return nil
	})
}

// servicePID is that of the process of a service, as the node numbers processes.
func (n *kindNode) servicePID(ctx context.Context, service string) (string, error) {
	if isUnit(service) {
		pid, err := n.run(ctx, "systemctl", "show", "--property=MainPID", "--value", service)
		if err == nil && pid == "0" {
			err = errors.New("it does not run")
		}
		return pid, err
	}
	ids := n.containers(ctx, service)
	if len(ids) != 1 {
		return "", fmt.Errorf("%d containers of it run", len(ids))
	}
	return n.run(ctx, "crictl", "inspect", "--output=go-template", "--template={{.info.pid}}", ids[0])
}
