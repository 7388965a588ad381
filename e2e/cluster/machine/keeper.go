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

// RunKeeper is the keeper: it executes the requests from in and answers on out. At the end of in it
// stops the machine, removes the folder dir, and returns.
func RunKeeper(dir string, in io.Reader, out io.Writer) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	// A caller may have inherited descriptors that it passes on. The machine must not have them.
	if err := unix.CloseRange(lockFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors from the machine: %w", err)
	}
	k := &keeper{dir: dir, hierarchies: all, lock: os.NewFile(lockFD, lockFile)}
	requests, replies := make(chan request), json.NewEncoder(out)
	go func() {
		defer close(requests)
		for d := json.NewDecoder(in); ; {
			var r request
			if d.Decode(&r) != nil {
				k.killInit()
				return
			}
			requests <- r
		}
	}()
	for r := range requests {
		// If the caller has ended, the end of in comes next.
		_ = replies.Encode(k.do(r))
	}
	return errors.Join(k.stop(), os.RemoveAll(dir))
}

type keeper struct {
	dir         string
	hierarchies []hierarchy
	lock        *os.File
	init        *exec.Cmd // nil if not booted
	line        line      // to init

	mu          sync.Mutex
	process     *os.Process // init
	callerEnded bool        // the caller has ended
}

// killInit kills init at once, because the last request may wait for it forever.
func (k *keeper) killInit() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.callerEnded = true
	if k.process != nil {
		_ = k.process.Kill()
	}
}

func (k *keeper) do(r request) reply {
	if r.Do == boot {
		if err := errors.Join(k.stop(), k.up()); err != nil {
			return answer(err)
		}
		return reply{PID: k.init.Process.Pid}
	}
	if k.init == nil {
		return answer(errors.New("the machine is not booted"))
	}
	got, err := k.line.ask(r)
	if err != nil {
		return answer(err)
	}
	return got
}

// up boots the machine, and returns when init has set it up.
func (k *keeper) up() error {
	spec, err := os.ReadFile(filepath.Join(k.dir, "spec.json"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(k.dir, LogDir, "init.log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("/proc/self/exe", "init", k.dir)
	cmd.Stderr, cmd.Dir, cmd.Env, cmd.ExtraFiles = log, "/", []string{}, []*os.File{k.lock}
	// In its own session it does not receive the terminal's signals to the caller's processes.
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS |
			unix.CLONE_NEWCGROUP,
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
	if err := within(k.hierarchies, filepath.Base(k.dir), func() error {
		return k.start(cmd)
	}); err != nil {
		return fmt.Errorf("start init: %w", err)
	}
	k.line = newLine(to, from)
	if err := k.line.to.Encode(guest{
		Dir: k.dir, Spec: spec, Hierarchies: k.hierarchies,
	}); err != nil {
		return fmt.Errorf("tell init: %w", err)
	}
	if _, err := k.line.ask(request{Do: boot}); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	return nil
}

func (k *keeper) start(cmd *exec.Cmd) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.callerEnded {
		return errors.New("nobody needs it any more")
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	k.init, k.process = cmd, cmd.Process
	return nil
}

// stop kills all processes of the machine, and returns when they and their cgroups no longer exist.
func (k *keeper) stop() error {
	if k.init != nil {
		// Init may have ended already, and the status of a killed process is irrelevant.
		_, _ = k.init.Process.Kill(), k.init.Wait()
		k.init = nil
	}
	return removeCgroups(k.hierarchies, filepath.Base(k.dir))
}
