package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Machine is an emulated machine that runs until it is closed or this process ends. Its methods
// are safe for concurrent use; requests are executed one at a time.
type Machine struct {
	dir     string
	spec    Spec
	monitor *exec.Cmd
	input   io.Closer // the monitor's standard input; closing it stops the machine

	calls sync.Mutex // held during each conn.call
	conn  conn       // to the monitor

	mu     sync.Mutex
	pid    int // of init, in the PID namespace of this process; 0 while the machine is down
	closed bool
}

// Start boots a machine in dir, and returns when it has been set up, without waiting for services.
// program is the path of the built cmd/node. If Start fails, it removes dir.
func Start(ctx context.Context, program string, dir *Dir, spec Spec) (*Machine, error) {
	m := &Machine{dir: dir.path, spec: spec}
	if err := m.startMonitor(program, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("start the monitor: %w", err), os.RemoveAll(dir.path))
	}
	if err := m.Reboot(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("machine %s: %w", spec.Hostname, err), m.Close())
	}
	return m, nil
}

// startMonitor starts the monitor. The monitor does not inherit this process's output. Otherwise, a
// process that reads the output to its end would also wait for the monitor.
func (m *Machine) startMonitor(program string, dir *Dir) error {
	encoded, err := json.Marshal(m.spec)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir.path, LogDir, "monitor.log"))
	if err != nil {
		return err
	}
	defer func() { _, _ = log.Close(), dir.lock.Close() }()
	if err := os.WriteFile(filepath.Join(dir.path, "spec.json"), encoded, 0o600); err != nil {
		return err
	}
	monitor := exec.Command(program, "monitor", dir.path)
	monitor.Stderr, monitor.Dir, monitor.Env = log, "/", []string{}
	monitor.ExtraFiles = []*os.File{dir.lock}
	monitor.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	input, err := monitor.StdinPipe()
	if err != nil {
		return err
	}
	output, err := monitor.StdoutPipe()
	if err != nil {
		return err
	}
	m.monitor, m.input, m.conn = monitor, input, newConn(input, output)
	return monitor.Start()
}

// call sends a request to the monitor when the previous request has been answered. It stops waiting
// for the reply when ctx is done.
func (m *Machine) call(ctx context.Context, r request) (reply, error) {
	type result struct {
		reply
		err error
	}
	done := make(chan result, 1)
	go func() {
		m.calls.Lock()
		defer m.calls.Unlock()
		received, err := m.conn.call(r)
		done <- result{received, err}
	}()
	select {
	case ended := <-done:
		return ended.reply, ended.err
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// Reboot kills all processes of the machine at once, which also removes its mounts and network. It
// then boots the machine from the same root, with all services enabled.
func (m *Machine) Reboot(ctx context.Context) error {
	received, err := m.call(ctx, request{Do: boot})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pid = received.PID
	return err
}

// StopService sends SIGKILL to a service and returns when it has ended. Init does not restart it.
func (m *Machine) StopService(ctx context.Context, name string) error {
	_, err := m.call(ctx, request{Do: stopService, Service: name})
	return err
}

// StartService enables a service again, and returns before it runs.
func (m *Machine) StartService(ctx context.Context, name string) error {
	_, err := m.call(ctx, request{Do: startService, Service: name})
	return err
}

// KillService sends SIGKILL to a service and returns when it has ended. Init restarts it.
func (m *Machine) KillService(ctx context.Context, name string) error {
	_, err := m.call(ctx, request{Do: killService, Service: name})
	return err
}

// PID returns the process ID of init, or 0 while the machine is down. It changes with a reboot.
func (m *Machine) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pid
}

// Dir returns the machine's directory, which contains LogDir.
func (m *Machine) Dir() string { return m.dir }

// Path returns the path on the host of a file of the machine. The path is valid until the machine
// reboots.
func (m *Machine) Path(file string) string {
	return filepath.Join("/proc", strconv.Itoa(m.PID()), "root", file)
}

// Command returns a command that runs inside the machine with the environment of the machine's
// services. The command is killed when ctx is done.
func (m *Machine) Command(ctx context.Context, argv ...string) *exec.Cmd {
	// setpriv kills the command when nsenter is killed. Otherwise the command, which is in another
	// PID namespace, would outlive nsenter.
	args := []string{
		"-t", strconv.Itoa(m.PID()), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--",
		"/usr/bin/setpriv", "--pdeathsig", "KILL",
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(args, argv...)...)
	cmd.Env = m.spec.Env
	return cmd
}

// Close stops the machine, and returns when its processes, mounts, cgroups and directory no longer
// exist. Further calls do nothing.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed, m.pid = true, 0
	log := filepath.Join(m.dir, LogDir, "monitor.log")
	// The monitor stops when its pipe is closed.
	err := m.input.Close()
	if waitErr := m.monitor.Wait(); waitErr != nil {
		output, _ := os.ReadFile(log)
		err = errors.Join(err,
			fmt.Errorf("monitor: %w: %s", waitErr, strings.TrimSpace(string(output))))
	}
	return err
}
