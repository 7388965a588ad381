package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Machine runs until it is closed or this process ends. Its methods are safe for concurrent use;
// the machine executes their requests one after the other.
type Machine struct {
	dir    string
	spec   Spec
	keeper *exec.Cmd
	input  interface{ Close() error }

	asking sync.Mutex
	line   line

	mu     sync.Mutex
	pid    int // init, as seen by this process; 0 while the machine is down
	closed bool
}

// Start boots a machine in a folder of NewDir, and returns when its services are about to start.
// program is the path of cmd/node. If Start fails, it removes the folder.
func Start(ctx context.Context, program string, dir *Dir, spec Spec) (*Machine, error) {
	m := &Machine{dir: dir.path, spec: spec}
	if err := m.keep(program, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("start the keeper: %w", err), os.RemoveAll(dir.path))
	}
	if err := m.Reboot(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("machine %s: %w", spec.Hostname, err), m.Close())
	}
	return m, nil
}

// keep starts the keeper. It inherits only its own pipes, so that a process that waits for the end
// of our output does not wait for the keeper.
func (m *Machine) keep(program string, dir *Dir) error {
	encoded, err := json.Marshal(m.spec)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir.path, LogDir, "keeper.log"))
	if err != nil {
		return err
	}
	defer func() { _, _ = log.Close(), dir.lock.Close() }()
	if err := os.WriteFile(filepath.Join(dir.path, "spec.json"), encoded, 0o600); err != nil {
		return err
	}
	keeper := exec.Command(program, "keep", dir.path)
	keeper.Stderr, keeper.Dir, keeper.Env = log, "/", []string{}
	keeper.ExtraFiles = []*os.File{dir.lock}
	keeper.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	input, err := keeper.StdinPipe()
	if err != nil {
		return err
	}
	output, err := keeper.StdoutPipe()
	if err != nil {
		return err
	}
	m.keeper, m.input, m.line = keeper, input, newLine(input, output)
	return keeper.Start()
}

// ask sends a request to the keeper, one at a time. It stops waiting for the answer when ctx is
// done.
func (m *Machine) ask(ctx context.Context, r request) (reply, error) {
	type result struct {
		reply
		err error
	}
	done := make(chan result, 1)
	go func() {
		m.asking.Lock()
		defer m.asking.Unlock()
		got, err := m.line.ask(r)
		done <- result{got, err}
	}()
	select {
	case got := <-done:
		return got.reply, got.err
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// Reboot kills all processes of the machine at once, which also removes its mounts and network. It
// then boots the machine from the same root, with all services enabled.
func (m *Machine) Reboot(ctx context.Context) error {
	got, err := m.ask(ctx, request{Do: boot})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pid = got.PID
	return err
}

// StopService sends SIGTERM to a service, SIGKILL after 2 seconds, and returns when it has ended.
// Init does not restart it.
func (m *Machine) StopService(ctx context.Context, name string) error {
	_, err := m.ask(ctx, request{Do: stopService, Service: name})
	return err
}

// StartService enables a service again, and returns before it runs.
func (m *Machine) StartService(ctx context.Context, name string) error {
	_, err := m.ask(ctx, request{Do: startService, Service: name})
	return err
}

// KillService sends SIGKILL to a service and returns when it has ended. Init restarts it.
func (m *Machine) KillService(ctx context.Context, name string) error {
	_, err := m.ask(ctx, request{Do: killService, Service: name})
	return err
}

// PID returns the process ID of init, or 0 while the machine is down. It changes with a reboot.
func (m *Machine) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pid
}

// Dir returns the machine's folder, which contains LogDir.
func (m *Machine) Dir() string { return m.dir }

// Path returns the path of a file of the machine on the host. It is valid until the machine
// reboots.
func (m *Machine) Path(file string) string {
	return filepath.Join("/proc", strconv.Itoa(m.PID()), "root", file)
}

// Command returns a command that runs inside the machine with the environment of its services. It
// is killed when ctx is done.
func (m *Machine) Command(ctx context.Context, argv ...string) *exec.Cmd {
	// nsenter waits for the command, which is in another PID namespace and would outlive it.
	args := []string{
		"-t", strconv.Itoa(m.PID()), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--",
		"/usr/bin/setpriv", "--pdeathsig", "KILL",
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(args, argv...)...)
	cmd.Env = m.spec.Env
	return cmd
}

// Close stops the machine, and returns when nothing of it is left. Further calls do nothing.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed, m.pid = true, 0
	log := filepath.Join(m.dir, LogDir, "keeper.log")
	// The keeper stops at the end of its pipe.
	err := m.input.Close()
	if waited := m.keeper.Wait(); waited != nil {
		said, _ := os.ReadFile(log)
		err = errors.Join(err,
			fmt.Errorf("keeper: %w: %s", waited, strings.TrimSpace(string(said))))
	}
	return err
}
