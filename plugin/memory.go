package plugin

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Runtimes call STATUS every few seconds (containerd every five), and its answers change seldom. How long a success counts:
const (
	kernelLasts = 5 * time.Minute // a module may be unloaded
	sourceLasts = time.Minute     // credentials may expire
)

// memory has what was found good lately, in a file of the run directory. Of what was found bad nothing is kept: whoever mends it is to
// see that at once. What another boot or another program has found does not count.
type memory struct {
	path          string
	now           time.Time
	boot, program string
}

// remembered is the content of the file.
type remembered struct {
	Boot    string               `json:"boot"`
	Program string               `json:"program"`
	Good    map[string]time.Time `json:"good"`
}

const memoryFile = "sluice-cni-status.json"

// remember returns the memory of a run directory.
func remember(runDir string, now time.Time) memory {
	return memory{path: filepath.Join(runDir, memoryFile), now: now, boot: bootID(), program: programID()}
}

// unless does the check, unless it has succeeded so lately.
func (m memory) unless(check string, lasts time.Duration, do func() error) error {
	if m.since(m.good()[check]) < lasts {
		return nil
	}
	err := do()
	// Read again: what a call that failed meanwhile has put in doubt stays so.
	good := m.good()
	delete(good, check)
	if err == nil {
		good[check] = m.now
	}
	maps.DeleteFunc(good, func(_ string, at time.Time) bool { return m.since(at) >= kernelLasts })
	m.keep(good)
	return err
}

// since is how long ago a time is; for ever for one that is to come, as after the clock was set back.
func (m memory) since(at time.Time) time.Duration {
	if at.After(m.now) {
		return math.MaxInt64
	}
	return m.now.Sub(at)
}

// doubt makes the next STATUS look at everything: something has failed.
func doubt(runDir string) { _ = os.Remove(filepath.Join(runDir, memoryFile)) }

// good reads the file. Without one, nothing is remembered.
func (m memory) good() map[string]time.Time {
	var r remembered
	data, err := os.ReadFile(m.path)
	if err != nil || json.Unmarshal(data, &r) != nil || r.Boot != m.boot || r.Program != m.program || r.Good == nil {
		return map[string]time.Time{}
	}
	return r.Good
}

// keep writes the file. What cannot be kept is found out again.
func (m memory) keep(good map[string]time.Time) {
	if m.boot == "" || m.program == "" {
		return
	}
	data, err := json.Marshal(remembered{m.boot, m.program, good})
	if err != nil || os.MkdirAll(filepath.Dir(m.path), 0o755) != nil {
		return
	}
	draft, err := os.CreateTemp(filepath.Dir(m.path), "."+memoryFile+".")
	if err != nil {
		return
	}
	_, err = draft.Write(data)
	if closeErr := draft.Close(); err != nil || closeErr != nil || os.Rename(draft.Name(), m.path) != nil {
		_ = os.Remove(draft.Name())
	}
}

// bootID is another one after each start of the kernel; empty if it cannot be read.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// programID is another one for each version of this program; empty if it is not known.
func programID() string { return fileID("/proc/self/exe") }

// fileID is another one after the file was written; empty if there is none.
func fileID(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
}
