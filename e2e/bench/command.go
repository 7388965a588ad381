package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Command is a program with its arguments.
type Command struct {
	Path  string
	Args  []string // without the program's name
	Env   []string // complete environment
	Stdin []byte
	// NS is the network namespace of the process; nil for the current one.
	NS *netns.NS
}

// prepare returns the command and the file for its output. Input and output are files and not
// pipes, because a pipe would need goroutines of this process, which affect the measured time.
func (c *Command) prepare() (cmd *exec.Cmd, out *os.File, err error) {
	in, err := memoryFile(c.Stdin)
	if err != nil {
		return nil, nil, err
	}
	if out, err = memoryFile(nil); err != nil {
		_ = in.Close()
		return nil, nil, err
	}
	cmd = exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, in, out, out
	return cmd, out, nil
}

// memoryFile returns a memfd with the content, positioned at its start.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("bench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "bench")
	_, err = file.Write(content)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	return file, err
}

// withCmd calls execute with the prepared command in the command's namespace. An error contains the
// output of the command.
func (c *Command) withCmd(execute func(*exec.Cmd) error) error {
	cmd, out, err := c.prepare()
	if err != nil {
		return err
	}
	defer func() { _, _ = cmd.Stdin.(*os.File).Close(), out.Close() }()
	if err := c.NS.Do(func() error { return execute(cmd) }); err != nil {
		_, _ = out.Seek(0, io.SeekStart)
		output, _ := io.ReadAll(out)
		return fmt.Errorf("%s: %w: %s", c.Path, err, output)
	}
	return nil
}

// Task returns the task of executing the command.
func (c *Command) Task() Task { return Task{Do: c.measure, Count: c.countResources} }

// measure executes the command, and returns its wall time and its CPU time.
func (c *Command) measure() (s Sample, err error) {
	err = c.withCmd(func(cmd *exec.Cmd) error {
		begin := time.Now()
		err := cmd.Run()
		wall := time.Since(begin)
		if err == nil {
			// The times include the times of children that the process waited for.
			usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
			s = Sample{report.Wall: wall.Seconds(), report.CPU: cpu.Seconds()}
		}
		return err
	})
	return s, err
}

// Run executes the command without measuring it.
func (c *Command) Run() error {
	return c.withCmd(func(cmd *exec.Cmd) error { return cmd.Run() })
}

// Output executes the command without measuring it, and returns its output.
func (c *Command) Output() ([]byte, error) {
	var output []byte
	err := c.withCmd(func(cmd *exec.Cmd) error {
		if err := cmd.Run(); err != nil {
			return err
		}
		out := cmd.Stdout.(*os.File)
		_, err := out.Seek(0, io.SeekStart)
		if err == nil {
			output, err = io.ReadAll(out)
		}
		return err
	})
	return output, err
}

// inSequence returns the task of executing commands one after the other. Its memory is the maximum
// of the commands; its other costs are sums.
func inSequence(commands []*Command) Task {
	runAll := func(total Sample, execute func(*Command) (Sample, error)) (Sample, error) {
		for _, c := range commands {
			s, err := execute(c)
			if err != nil {
				return nil, err
			}
			for q, value := range s {
				if q == report.Memory {
					total[q] = max(total[q], value)
					continue
				}
				total[q] += value
			}
		}
		return total, nil
	}
	return Task{
		Do: func() (Sample, error) { return runAll(Sample{}, (*Command).measure) },
		Count: func() (Sample, error) {
			// The first command is the candidate itself: only the commands after the first count as
			// executed programs.
			furtherCommands := Sample{report.Executed: float64(len(commands) - 1)}
			return runAll(furtherCommands, (*Command).countResources)
		},
	}
}
