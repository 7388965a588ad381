package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Command is a program to be executed.
type Command struct {
	Path  string
	Env   []string // all of it
	Stdin []byte
	// In is the network namespace in which the process runs; nil for this one's.
	In *netns.NS
}

// exec returns the command, and the file that its output goes to. Files and not pipes: nobody need be there to read and write.
func (c *Command) exec() (cmd *exec.Cmd, out *os.File, err error) {
	in, err := unnamed(c.Stdin)
	if err != nil {
		return nil, nil, err
	}
	if out, err = unnamed(nil); err != nil {
		_ = in.Close()
		return nil, nil, err
	}
	cmd = exec.Command(c.Path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, in, out, out
	return cmd, out, nil
}

// unnamed returns a file in memory that has the content, and is read from its beginning.
func unnamed(content []byte) (*os.File, error) {
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

// do executes the command by the function, in its namespace. An error has the output.
func (c *Command) do(execute func(*exec.Cmd) error) error {
	cmd, out, err := c.exec()
	if err != nil {
		return err
	}
	defer func() { _, _ = cmd.Stdin.(*os.File).Close(), out.Close() }()
	if err := c.In.Do(func() error { return execute(cmd) }); err != nil {
		_, _ = out.Seek(0, io.SeekStart)
		said, _ := io.ReadAll(out)
		return fmt.Errorf("%s: %w: %s", c.Path, err, said)
	}
	return nil
}

// run executes the command, and tells what that took.
func (c *Command) run() (s Sample, err error) {
	err = c.do(func(cmd *exec.Cmd) error {
		begin := time.Now()
		err := cmd.Run()
		s.Wall = time.Since(begin)
		if err == nil {
			// The times of children that were waited for are in it.
			usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			s.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
		return err
	})
	return s, err
}

// runs executes a command that is not measured.
func runs(cmd *exec.Cmd) error { return cmd.Run() }
