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

// Keep is the keeper: it does what in asks for, and answers on out. It returns at the end of in,
// when the machine and its folder, dir, are gone.
func Keep(dir string, in io.Reader, out io.Writer) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	// A caller may have been given descriptors that it knows nothing of, and passes on. They are
	// not for the machine.
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
				k.abandon()
				return
			}
			requests <- r
		}
	}()
	for r := range requests {
		// A caller that is gone does not read: the end of in comes next.
		_ = replies.Encode(k.do(r))
	}
	return errors.Join(k.down(), os.RemoveAll(dir))
}

type keeper struct {
	dir         string
	hierarchies []hierarchy
	lock        *os.File
	init        *exec.Cmd // nil: not booted
	line        line      // to init

	mu        sync.Mutex
	process   *os.Process // of init
	abandoned bool        // nobody is there to boot for
}

// abandon ends init at once, for which the last request may be waiting for ever.
func (k *keeper) abandon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abandoned = true
	if k.process != nil {
		_ = k.process.Kill()
	}
}

func (k *keeper) do(r request) reply {
	if r.Do == boot {
		if err := errors.Join(k.down(), k.up()); err != nil {
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

// up boots, and returns when init has made the machine.
func (k *keeper) up() error {
	spec, err := os.ReadFile(filepath.Join(k.dir, "spec.json"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(k.dir, LogDir, "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("/proc/self/exe", "init", k.dir)
	cmd.Stderr, cmd.Dir, cmd.Env, cmd.ExtraFiles = log, "/", []string{}, []*os.File{k.lock}
	// Its own session: what a terminal sends to the caller's processes is not for it.
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
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
	// The root of the new cgroup namespace is where this process is when it makes that.
	if err := within(k.hierarchies, filepath.Base(k.dir), func() error { return k.start(cmd) }); err != nil {
		return fmt.Errorf("start init: %w", err)
	}
	k.line = newLine(to, from)
	if err := k.line.to.Encode(guest{Dir: k.dir, Spec: spec, Hierarchies: k.hierarchies}); err != nil {
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
	if k.abandoned {
		return errors.New("nobody needs it any more")
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	k.init, k.process = cmd, cmd.Process
	return nil
}

// down ends every process of the machine, and returns when they and their cgroups are gone.
func (k *keeper) down() error {
	if k.init != nil {
		// It may have ended, and the status of a process that was killed is no news.
		_, _ = k.init.Process.Kill(), k.init.Wait()
		k.init = nil
	}
	return removeCgroups(k.hierarchies, filepath.Base(k.dir))
}
