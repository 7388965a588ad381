package soak

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// quantities returns the sampled quantities of the agent, with the allowed growth between the
// second and the last quarter of the samples. If the agent leaked one descriptor, thread or
// goroutine per sandbox, the growth in a run of an hour would be thousands.
func (n *node) quantities() []quantity {
	return []quantity{
		{report.Series{Name: "resident memory", Unit: "MB", Growth: 4}, n.memory},
		{report.Series{Name: "descriptors", Growth: 8}, n.descriptors},
		{report.Series{Name: "descriptors of network namespaces", Growth: 4}, n.namespaces},
		{report.Series{Name: "goroutines", Growth: 16}, n.goroutines},
		{report.Series{Name: "threads", Growth: 4}, n.threads},
		{report.Series{Name: "files on disk", Growth: 4}, n.files},
	}
}

// A quantity is a series of samples, and the function that reads the next one.
type quantity struct {
	report.Series
	read func() (float64, error)
}

// sample appends the current value.
func (q *quantity) sample(since time.Time) error {
	v, err := q.read()
	if err != nil {
		return fmt.Errorf("%s: %w", q.Name, err)
	}
	q.Seconds = append(q.Seconds, time.Since(since).Round(time.Millisecond).Seconds())
	q.Values = append(q.Values, v)
	return nil
}

// memory returns the resident memory in MB. In /proc/PID/status, kB is 1024 bytes.
func (n *node) memory() (float64, error) {
	kilobytes, err := n.status("VmRSS")
	return kilobytes / 1000 * 1.024, err
}

func (n *node) threads() (float64, error) { return n.status("Threads") }

// status returns a number from /proc/PID/status.
func (n *node) status(field string) (float64, error) {
	text, err := os.ReadFile(n.proc("status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strconv.ParseFloat(strings.Fields(value)[0], 64)
		}
	}
	return 0, fmt.Errorf("%s: no field %s", n.proc("status"), field)
}

// proc returns the path of a file of the agent in /proc.
func (n *node) proc(name string) string {
	return fmt.Sprintf("/proc/%d/%s", n.agent.Process.Pid, name)
}

// descriptors counts the open descriptors of the agent.
func (n *node) descriptors() (float64, error) {
	entries, err := os.ReadDir(n.proc("fd"))
	return float64(len(entries)), err
}

// namespaces counts the agent's descriptors of network namespaces.
func (n *node) namespaces() (float64, error) {
	links, err := filepath.Glob(n.proc("fd/*"))
	count := 0
	for _, link := range links {
		// Readlink fails if the descriptor has been closed meanwhile.
		if to, err := os.Readlink(link); err == nil && (strings.HasPrefix(to, "net:[") ||
			strings.HasPrefix(to, netnsDir)) {
			count++
		}
	}
	return float64(count), err
}

// goroutines returns the metric go_goroutines.
func (n *node) goroutines() (float64, error) {
	r, err := n.client.Get(n.metrics)
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Body.Close() }()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("no metric go_goroutines")
}

// files counts the files of agent and plugin, without the runtime's own cache.
func (n *node) files() (float64, error) {
	names, err := n.writtenFiles()
	return float64(len(names)), err
}

// writtenFiles returns the files of agent and plugin.
func (n *node) writtenFiles() (names []string, err error) {
	for _, dir := range []string{"run", "state", "conf", "bin"} {
		err = errors.Join(err, filepath.WalkDir(n.path(dir), func(
			path string, entry fs.DirEntry, err error,
		) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed during the walk
			}
			if err == nil && !entry.IsDir() {
				names = append(names, path)
			}
			return err
		}))
	}
	return names, err
}
