package build

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

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
	const maxLines = 20 // enough to see why a command failed
	var lastLines []string
	reported := begin
	for s := bufio.NewScanner(output); s.Scan(); {
		lastLines = append(lastLines[max(0, len(lastLines)-maxLines+1):], s.Text())
		if time.Since(reported) > progressInterval {
			reported = time.Now()
			fmt.Fprintf(b.log, "%s: %.0f s, %s\n", name, time.Since(begin).Seconds(), s.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err),
			errors.New(strings.Join(lastLines, "\n")))
	}
	fmt.Fprintf(b.log, "%s: done in %.0f s\n", name, time.Since(begin).Seconds())
	return nil
}
