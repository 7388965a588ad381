package docker

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// An Engine is a Docker daemon. Its methods are safe for concurrent use.
type Engine interface {
	// Command returns a command that runs on the engine's machine, such as docker or kind. kind
	// does not change the user's kubeconfig. The command is killed when ctx is done.
	Command(ctx context.Context, argv ...string) *exec.Cmd

	// Proc returns the path of a proc file system with the process IDs that the engine reports.
	Proc() string

	// Dir returns a directory of this machine for files of the cluster. Close removes it.
	Dir() string

	// Logs copies the engine's own logs to a directory, which it creates. It does nothing if
	// UseHost returned the engine.
	Logs(dir string) error

	// Close removes the engine's cluster, its network, its node image and the directory, and the
	// engine itself if StartNamespaced started it. It returns when everything is removed. Further
	// calls remove nothing.
	Close() error
}

// NodeImage returns the name of the node image that belongs to a cluster and is removed with it.
func NodeImage(cluster string) string { return "e2e.sluice.test/node:" + cluster }

// Runs reports whether this machine has a running engine.
func Runs(ctx context.Context) bool {
	const readyTimeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "version").Run() == nil
}

// ProcessDir returns the directory of a process in the engine's /proc.
func ProcessDir(e Engine, pid int) string { return filepath.Join(e.Proc(), strconv.Itoa(pid)) }
