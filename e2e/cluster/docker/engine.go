package docker

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// An Engine is a docker that runs. Its methods are safe for concurrent use.
type Engine interface {
	// Command returns a command that runs where the engine is: docker, kind, which writes no
	// kubeconfig of a user's. It is killed when ctx is done.
	Command(ctx context.Context, argv ...string) *exec.Cmd

	// Proc is where /proc of the engine's machine is for this process: it has the processes by the
	// numbers that the engine says.
	Proc() string

	// Dir is a folder of this machine for what belongs to the cluster. It goes with the engine.
	Dir() string

	// Logs copies into a folder, which it makes, what the engine itself has logged where this
	// process may read it.
	Logs(dir string) error

	// Close takes away the cluster of the name that the engine was started for, its network, its
	// node image and the folder, and the engine itself if it is of its own. It returns when nothing
	// is left. The second time it does nothing.
	Close() error
}

// ImageOf is the name of a node image that the cluster of a name has for itself, and which goes
// with it.
func ImageOf(cluster string) string { return "e2e.sluice.test/node:" + cluster }

// Runs reports whether this machine has an engine that answers.
func Runs(ctx context.Context) bool {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "version").Run() == nil
}

// Process is where the folder of a process in /proc is for this process.
func Process(e Engine, pid int) string { return filepath.Join(e.Proc(), strconv.Itoa(pid)) }
