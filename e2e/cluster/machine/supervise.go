package machine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Intervals of init.
const (
	// restartDelay is the time between the end of a service and its next start.
	restartDelay = 200 * time.Millisecond
	// pollInterval is the time between two attempts to connect to a socket, or to wait for a child
	// while there is none.
	pollInterval = 20 * time.Millisecond
)

// A supervisor runs services, and reaps orphaned processes of the machine.
type supervisor struct {
	env      []string
	logs     map[string]*os.File
	mu       sync.Mutex
	changed  *sync.Cond // signals changes of the fields below; uses mu
	enabled  map[string]bool
	services map[int]string // names of running services by process ID
	pids     map[string]int // process IDs of running services by name
}

// openLogs opens the services' log files, which are not accessible after the root directory has
// changed.
func openLogs(dir string, spec Spec) (map[string]*os.File, error) {
	logs := map[string]*os.File{}
	for _, s := range spec.Services {
		file, err := os.OpenFile(filepath.Join(dir, LogDir, s.Name+".log"),
			os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		logs[s.Name] = file
	}
	return logs, nil
}

// supervise starts the services and returns at once.
func supervise(spec Spec, logs map[string]*os.File) *supervisor {
	s := &supervisor{
		env: spec.Env, logs: logs, enabled: map[string]bool{}, services: map[int]string{},
		pids: map[string]int{},
	}
	s.changed = sync.NewCond(&s.mu)
	for _, service := range spec.Services {
		s.enabled[service.Name] = true
		go s.run(service)
	}
	go s.reap()
	return s
}

// run starts a service, and restarts it when it ends, while the service is enabled. It never
// returns.
func (s *supervisor) run(service Service) {
	for {
		s.mu.Lock()
		for !s.enabled[service.Name] || s.pids[service.Name] != 0 {
			s.changed.Wait()
		}
		s.mu.Unlock()
		if service.After != "" && !acceptsConnections(service.After) {
			time.Sleep(pollInterval)
			continue
		}
		if err := s.start(service); err != nil {
			fmt.Fprintf(s.logs[service.Name], "init: %v\n", err)
		}
		s.mu.Lock()
		for s.pids[service.Name] != 0 {
			s.changed.Wait()
		}
		s.mu.Unlock()
		time.Sleep(restartDelay)
	}
}

// start starts a service if it is still enabled.
func (s *supervisor) start(service Service) error {
	s.mu.Lock() // reap must not handle the process before its ID is stored
	defer s.mu.Unlock()
	if !s.enabled[service.Name] {
		return nil
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	program, err := lookUp(service.Argv[0], s.env)
	if err != nil {
		return err
	}
	log := s.logs[service.Name]
	process, err := os.StartProcess(program, service.Argv, &os.ProcAttr{
		Dir: "/", Env: s.env, Files: []*os.File{null, log, log},
		Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	s.pids[service.Name], s.services[process.Pid] = process.Pid, service.Name
	s.changed.Broadcast()
	return process.Release()
}

// lookUp finds a program in the PATH of an environment.
func lookUp(name string, env []string) (string, error) {
	for _, variable := range env {
		path, isPath := strings.CutPrefix(variable, "PATH=")
		for _, dir := range filepath.SplitList(path) {
			if _, err := os.Stat(filepath.Join(dir, name)); isPath && err == nil {
				return filepath.Join(dir, name), nil
			}
		}
	}
	return "", fmt.Errorf("no program %s in PATH", name)
}

// reap waits for all children, including orphaned processes.
func (s *supervisor) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			time.Sleep(pollInterval)
		}
		if err != nil {
			continue
		}
		s.mu.Lock()
		if name := s.services[pid]; name != "" {
			fmt.Fprintf(s.logs[name], "init: process %d ended: exit status %d, signal %d\n", pid,
				status.ExitStatus(), status.Signal())
			delete(s.services, pid)
			delete(s.pids, name)
			s.changed.Broadcast()
		}
		s.mu.Unlock()
	}
}

// acceptsConnections reports whether a socket in the form of Service.After accepts connections.
func acceptsConnections(socket string) bool {
	network, address, _ := strings.Cut(socket, ":")
	conn, err := net.Dial(network, address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// execute executes a request. If it stops a process, it waits until the process has ended. It does
// not wait until a service has started, because the service may depend on another service that a
// later request starts.
func (s *supervisor) execute(r request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs[r.Service] == nil {
		return fmt.Errorf("%s: no such service", r.Service)
	}
	pid := s.pids[r.Service]
	switch r.Do {
	case startService:
		s.enabled[r.Service] = true
		s.changed.Broadcast()
		return nil
	case stopService:
		s.enabled[r.Service] = false
		return s.killAndWait(r.Service, pid)
	case killService:
		if pid == 0 {
			return fmt.Errorf("%s: not running", r.Service)
		}
		return s.killAndWait(r.Service, pid)
	default:
		return fmt.Errorf("unknown request %q", r.Do)
	}
}

// killAndWait sends SIGKILL to a service's process and waits until the process has ended. The
// caller must hold s.mu. If pid is 0, it does nothing.
func (s *supervisor) killAndWait(service string, pid int) error {
	if pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("%s: SIGKILL: %w", service, err)
	}
	for s.pids[service] == pid {
		s.changed.Wait()
	}
	return nil
}
