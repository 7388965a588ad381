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

// Directories of a node with the manifests of running and of stopped static pods.
const (
	manifests        = kubernetesDir + "/manifests"
	stoppedManifests = kubernetesDir + "/stopped"
)

// isUnit reports whether a service is a systemd unit of the node. Other services are pods.
func isUnit(service string) bool { return service == Kubelet || service == Containerd }

// StopService implements Node. The services of the control plane are static pods, which the kubelet
// stops when their manifest is removed. kube-proxy is a DaemonSet, and cannot be stopped.
func (n *kindNode) StopService(ctx context.Context, service string) error {
	if isUnit(service) {
		_, err := run(ctx, n, "systemctl", "stop", service)
		return err
	}
	if service == Proxy {
		return fmt.Errorf("stop %s on %s: pods of a DaemonSet cannot be stopped", service, n.name)
	}
	if err := n.moveManifest(service, manifests, stoppedManifests); err != nil {
		return fmt.Errorf("stop %s on %s: %w", service, n.name, err)
	}
	condition := service + " is stopped"
	return n.cluster.progress.waitUntil(ctx, condition, func(ctx context.Context) error {
		pods, err := run(ctx, n, "crictl", "pods", "--quiet", "--state=ready",
			"--namespace=kube-system", "--name=^"+service+"-")
		if err != nil || pods == "" {
			return err
		}
		// The kubelet waits up to 30 seconds for the pod to terminate, and does not stop it at all
		// while the API server is unavailable.
		if ids := n.containers(ctx, service); len(ids) > 0 {
			_, err = run(ctx, n, append([]string{"crictl", "stop", "--timeout=2"}, ids...)...)
		}
		_, stopErr := run(ctx, n, append([]string{"crictl", "stopp"}, strings.Fields(pods)...)...)
		return errors.Join(errors.New("the pod was running"), err, stopErr)
	})
}

// StartService implements Node.
func (n *kindNode) StartService(ctx context.Context, service string) error {
	if isUnit(service) {
		_, err := run(ctx, n, "systemctl", "start", "--no-block", service)
		return err
	}
	if service == Proxy {
		return nil
	}
	if err := n.moveManifest(service, stoppedManifests, manifests); err != nil {
		return fmt.Errorf("start %s on %s: %w", service, n.name, err)
	}
	return nil
}

// moveManifest moves a service's manifest from the directory from to the directory to. It does
// nothing if the manifest has already been moved.
func (n *kindNode) moveManifest(service, from, to string) error {
	name := service + ".yaml"
	if err := os.MkdirAll(n.Path(to), 0o700); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(n.Path(from), name), filepath.Join(n.Path(to), name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(filepath.Join(n.Path(to), name)); statErr == nil {
			return nil
		}
	}
	return err
}

// containers returns the IDs of a service's running containers, or nil if crictl fails.
func (n *kindNode) containers(ctx context.Context, service string) []string {
	out, err := run(ctx, n, "crictl", "ps", "--quiet", "--name=^"+service+"$")
	if err != nil {
		return nil
	}
	return strings.Fields(out)
}

// KillService implements Node. systemd restarts a unit. The kubelet restarts a container:
// immediately after the first kill, and after further kills with an increasing delay that starts at
// ten seconds.
func (n *kindNode) KillService(ctx context.Context, service string) error {
	pid, err := n.servicePID(ctx, service)
	if err != nil {
		return fmt.Errorf("kill %s: %w", service, err)
	}
	if _, err := run(ctx, n, "kill", "-KILL", pid); err != nil {
		return fmt.Errorf("kill %s: %w", service, err)
	}
	return n.cluster.progress.waitUntil(ctx, service+" is killed", func(context.Context) error {
		if _, err := os.Stat(filepath.Join(n.Path("/proc"), pid, "exe")); err == nil {
			return errors.New("the process exists")
		}
		return nil
	})
}

// servicePID returns the process ID of a service on the node.
func (n *kindNode) servicePID(ctx context.Context, service string) (string, error) {
	if isUnit(service) {
		pid, err := run(ctx, n, "systemctl", "show", "--property=MainPID", "--value", service)
		if err == nil && pid == "0" {
			err = errors.New("the service is not running")
		}
		return pid, err
	}
	ids := n.containers(ctx, service)
	if len(ids) != 1 {
		return "", fmt.Errorf("%d running containers, want 1", len(ids))
	}
	return run(ctx, n, "crictl", "inspect", "--output=go-template", "--template={{.info.pid}}",
		ids[0])
}
