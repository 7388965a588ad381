package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// collectLogs saves the logs of the engine, of kind's nodes and of their services. Logs of pods,
// including the control plane's, are files on the nodes.
func (k *kindCluster) collectLogs(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := []error{os.MkdirAll(dir, 0o755), k.engine.Logs(filepath.Join(dir, "docker"))}
	for _, n := range k.kindNodes {
		errs = append(errs, saveOutput(filepath.Join(dir, n.name+".log"),
			k.engine.Command(ctx, "docker", "logs", n.name)))
		for _, service := range []string{Containerd, Kubelet} {
			journal := n.Command(ctx, "journalctl", "--no-pager", "--output=short-precise",
				"--unit="+service)
			errs = append(errs,
				saveOutput(filepath.Join(dir, n.name+"-"+service+".log"), journal))
		}
	}
	return errors.Join(errs...)
}

// A lineLog is a writer for the output of a program. It passes each complete line that is not blank
// to log, and keeps the last lines.
type lineLog struct {
	log func(line string)

	mu      sync.Mutex
	partial []byte
	last    []string
}

// Write implements io.Writer.
func (l *lineLog) Write(p []byte) (int, error) {
	const maxLines = 200 // kept for lastLines
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, complete := bytes.Cut(l.partial, []byte("\n"))
		if !complete {
			return len(p), nil
		}
		l.partial = rest
		if text := strings.TrimSpace(string(line)); text != "" {
			l.log(text)
			l.last = append(l.last[max(0, len(l.last)-maxLines+1):], text)
		}
	}
}

// lastLines returns the last lines, including an incomplete one.
func (l *lineLog) lastLines() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(append(l.last, string(l.partial)), "\n")
}
