package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// A host is the engine of this machine. A child process, the remover, removes the cluster when
// Close is called or this process ends.
type host struct {
	env     []string
	dir     string
	remover *exec.Cmd
	input   io.Closer // of the remover; closing it makes the remover remove the cluster

	closeOnce sync.Once
	closeErr  error
}

// removeScript waits for the end of its input, and then removes the cluster, network, node image
// and directory. It ignores objects that do not exist, and fails if one remains.
const removeScript = `
	cat >/dev/null
	kind delete cluster --quiet --name "$1"
	docker network rm "$1" >/dev/null 2>&1
	docker image rm --force "$2" >/dev/null 2>&1
	rm -rf "$3"
	left=$(docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$1"
		docker images --quiet "$2"; docker network ls --quiet --filter "name=^$1$")
	[ -z "$left" ] || { echo "left in docker: $left" >&2; exit 1; }
	rm -f "$3.log"`

// UseHost returns the engine of this machine for a cluster. The PATH of its commands begins with
// kindDir, the directory of kind. The cluster's directory is created in parent.
func UseHost(kindDir, parent, cluster string) (Engine, error) {
	dir, err := os.MkdirTemp(parent, "sluice-e2e-kind-")
	if err != nil {
		return nil, err
	}
	// The remover writes to a file, because its output is needed after this process has ended.
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { _ = log.Close() }()
	h := &host{dir: dir, env: append(os.Environ(),
		"PATH="+kindDir+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"KIND_EXPERIMENTAL_DOCKER_NETWORK="+cluster,
		"KUBECONFIG="+filepath.Join(dir, "kind-kubeconfig"))}
	h.remover = exec.Command("/bin/sh", "-c", removeScript, "sh", cluster, NodeImage(cluster), dir)
	h.remover.Env, h.remover.Stdout, h.remover.Stderr = h.env, log, log
	// In its own session, the remover does not receive signals from the terminal.
	h.remover.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if h.input, err = h.remover.StdinPipe(); err == nil {
		err = h.remover.Start()
	}
	if err != nil {
		err = fmt.Errorf("start the process that removes the cluster: %w", err)
		return nil, errors.Join(err, os.RemoveAll(dir), os.Remove(log.Name()))
	}
	return h, nil
}

// Command implements Engine.
func (h *host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	// Unlike exec.Command, the program env searches the PATH in h.env for the command.
	cmd := exec.CommandContext(ctx, "env", argv...)
	cmd.Env = h.env
	return cmd
}

// Proc implements Engine.
func (h *host) Proc() string { return "/proc" }

// Dir implements Engine.
func (h *host) Dir() string { return h.dir }

// Logs implements Engine. The logs of this machine's engine are not copied.
func (h *host) Logs(string) error { return nil }

// Close implements Engine.
func (h *host) Close() error {
	h.closeOnce.Do(func() {
		if err := errors.Join(h.input.Close(), h.remover.Wait()); err != nil {
			output, _ := os.ReadFile(h.dir + ".log")
			h.closeErr = fmt.Errorf("remove the cluster: %w: %s", err, output)
		}
	})
	return h.closeErr
}
