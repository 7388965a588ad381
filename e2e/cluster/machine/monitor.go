package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// RunMonitor executes the requests from in and writes the replies to out. At the end of in it stops
// the machine, removes its directory dir, and returns.
func RunMonitor(dir string, in io.Reader, out io.Writer) error {
	hierarchies, err := mountedHierarchies()
	if err != nil {
		return err
	}
	// The machine must not inherit descriptors that the caller has left open.
	if err := unix.CloseRange(lockFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("set close-on-exec: %w", err)
	}
	m := &monitor{dir: dir, hierarchies: hierarchies, lock: os.NewFile(lockFD, lockFile)}
	requests, replies := make(chan request), json.NewEncoder(out)
	go func() {
		defer close(requests)
		for d := json.NewDecoder(in); ; {
			var r request
			if d.Decode(&r) != nil {
				m.killInit()
				return
			}
			requests <- r
		}
	}()
	for r := range requests {
		// If Encode fails, the caller has ended, and the goroutine above closes requests.
		_ = replies.Encode(m.execute(r))
	}
	return errors.Join(m.stop(), os.RemoveAll(dir))
}

// A monitor boots and stops a machine.
type monitor struct {
	dir         string
	hierarchies []hierarchy
	lock        *os.File
	init        *exec.Cmd // nil if the machine is not booted
	conn        conn      // to init

	mu          sync.Mutex  // for the fields below, which killInit uses in another goroutine
	process     *os.Process // of the last init
	callerEnded bool
}

// killInit kills init immediately, because the current request may wait for it forever.
func (m *monitor) killInit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.callerEnded = true
	if m.process != nil {
		_ = m.process.Kill()
	}
}

// execute executes a request, and returns the reply.
func (m *monitor) execute(r request) reply {
	if r.Do == boot {
		if err := errors.Join(m.stop(), m.bootInit()); err != nil {
			return replyFor(err)
		}
		return reply{PID: m.init.Process.Pid}
	}
	if m.init == nil {
		return replyFor(errors.New("the machine is not booted"))
	}
	received, err := m.conn.call(r)
	if err != nil {
		return replyFor(err)
	}
	return received
}

// bootInit starts init, and returns when init has set up the machine.
func (m *monitor) bootInit() error {
	spec, err := os.ReadFile(filepath.Join(m.dir, "spec.json"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.dir, LogDir, "init.log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("/proc/self/exe", "init", m.dir)
	cmd.Stderr, cmd.Dir, cmd.Env, cmd.ExtraFiles = log, "/", []string{}, []*os.File{m.lock}
	// In its own session, init does not receive signals from the caller's terminal.
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
	}
	to, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	// The root of a new cgroup namespace is the cgroup of the process that creates it.
	err = inCgroups(m.hierarchies, filepath.Base(m.dir), func() error { return m.startInit(cmd) })
	if err != nil {
		return fmt.Errorf("start init: %w", err)
	}
	m.conn = newConn(to, from)
	if err := m.conn.to.Encode(bootMessage{
		Dir: m.dir, Spec: spec, Hierarchies: m.hierarchies,
	}); err != nil {
		return fmt.Errorf("send the description to init: %w", err)
	}
	if _, err := m.conn.call(request{Do: boot}); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	return nil
}

// startInit starts init, unless the caller has ended.
func (m *monitor) startInit(cmd *exec.Cmd) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.callerEnded {
		return errors.New("the caller has ended")
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.init, m.process = cmd, cmd.Process
	return nil
}

// stop kills all processes of the machine, and returns when they and their cgroups no longer exist.
func (m *monitor) stop() error {
	if m.init != nil {
		// Init may have ended already, and the status of a killed process is irrelevant.
		_, _ = m.init.Process.Kill(), m.init.Wait()
		m.init = nil
	}
	return removeCgroups(m.hierarchies, filepath.Base(m.dir))
}
