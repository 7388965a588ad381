package build

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// progressInterval is the interval of progress messages.
const progressInterval = 3 * time.Second

// runLogged runs a command, and regularly logs the last line of its output. An error contains the
// last lines of the output.
func (b *builder) runLogged(name string, cmd *exec.Cmd) error {
	begin := time.Now()
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(output); s.Scan(); {
			lines <- s.Text()
		}
	}()
	const maxLines = 20 // enough to see why a command failed
	var lastLines []string
	lastLine := "no output yet"
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for open := true; open; {
		select {
		case line, more := <-lines:
			if open = more; open {
				lastLine = line
				lastLines = append(lastLines[max(0, len(lastLines)-maxLines+1):], line)
			}
		case <-tick.C:
			fmt.Fprintf(b.log, "%s: %.0f s, %s\n", name, time.Since(begin).Seconds(), lastLine)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w%s", filepath.Base(cmd.Path), err,
			strings.Join(append([]string{""}, lastLines...), "\n"))
	}
	fmt.Fprintf(b.log, "%s: done in %.0f s\n", name, time.Since(begin).Seconds())
	return nil
}
