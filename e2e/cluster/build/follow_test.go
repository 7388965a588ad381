package build

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

func TestErrorContainsTheLastLinesOfACommand(t *testing.T) {
	var log bytes.Buffer
	b := &builder{log: &log}
	if err := b.runLogged("x", exec.Command("sh", "-c", "echo one; echo two >&2")); err != nil ||
		!strings.Contains(log.String(), "x: done") {
		t.Errorf("successful command: error %v, log %q; want the message that it is done", err, &log)
	}
	err := b.runLogged("x", exec.Command("sh", "-c", "seq 100; echo why >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") ||
		!strings.HasSuffix(err.Error(), "100\nwhy") ||
		strings.Contains(err.Error(), "\n50\n") {
		t.Errorf("failed command: error %v, want the exit status and the last lines", err)
	}
}
