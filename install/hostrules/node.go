package hostrules

import (
	"fmt"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Node is the machine that the agent's container runs on.
type Node struct {
	// ProcDir is the node's /proc in the agent's mount namespace.
	ProcDir string
}

// process returns the path of a file of the node's first process.
func (n Node) process(file string) string { return filepath.Join(n.ProcDir, "1", file) }

// Open opens the node's network namespace. This needs CAP_SYS_PTRACE.
func (n Node) Open() (*netns.NS, error) { return netns.Open(n.process("ns/net")) }

// Do runs fn on a thread in the node's network namespace and its cgroup namespace, and returns its
// error. This needs CAP_SYS_ADMIN and CAP_SYS_PTRACE. Goroutines that fn starts are not in these
// namespaces.
func (n Node) Do(fn func() error) error {
	done := make(chan error, 1)
	go n.run(fn, done, nil)
	return <-done
}

// run runs fn on the thread of this goroutine. The thread ends with the goroutine. The main thread
// cannot end; there, a second goroutine is started, which closes started when it has another thread.
func (n Node) run(fn func() error, done chan<- error, started chan<- struct{}) {
	runtime.LockOSThread()
	if started != nil {
		close(started)
	} else if unix.Gettid() == unix.Getpid() {
		started := make(chan struct{})
		go n.run(fn, done, started)
		<-started
		runtime.UnlockOSThread()
		return
	}
	err := n.enter("ns/cgroup", unix.CLONE_NEWCGROUP)
	if err == nil {
		err = n.enter("ns/net", unix.CLONE_NEWNET)
	}
	if err == nil {
		err = fn()
	}
	done <- err
}

func (n Node) enter(file string, kind int) error {
	path := n.process(file)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("namespace %s of the node: open: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Setns(fd, kind); err != nil {
		return fmt.Errorf("namespace %s of the node: enter: %w", path, err)
	}
	return nil
}
