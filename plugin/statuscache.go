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

	"github.com/sluice-mesh/sluice/plugin/file"
)

// The times for which the result of a successful check is valid. Runtimes call STATUS every few
// seconds (containerd every five seconds), and the results seldom change.
const (
	kernelTTL = 5 * time.Minute // a module may be unloaded
	sourceTTL = time.Minute     // credentials may expire
	maxTTL    = kernelTTL       // the longest of these
)

// A statusCache stores the checks of STATUS that succeeded recently, in a file of the run
// directory. Failures are not cached, so that a repair is detected immediately. Results of another
// boot or of another version of the program are ignored.
type statusCache struct {
	path          string
	now           time.Time
	boot, program string
	// generation is the generation of the file when the call began.
	generation string
}

// cachedStatus is the content of the file.
type cachedStatus struct {
	Boot    string `json:"boot"`
	Program string `json:"program"`
	// Generation identifies a file from its creation until [invalidateStatus] removes it.
	Generation string               `json:"generation"`
	Successes  map[string]time.Time `json:"good"` // time of the last success of each check
}

const statusFile = "sluice-cni-status.json"

// openStatusCache returns the cache of a run directory. If there is no valid file, it tries to
// create one.
func openStatusCache(runDir string, now time.Time) statusCache {
	path := filepath.Join(runDir, statusFile)
	c := statusCache{path: path, now: now, boot: bootID(), program: programID()}
	if c.generation = c.read().Generation; c.generation == "" {
		c.generation = fmt.Sprintf("%d of process %d", time.Now().UnixNano(), os.Getpid())
		c.write(map[string]time.Time{})
	}
	return c
}

// check runs do and returns its error. If do has succeeded under the same name within ttl, check
// returns nil without running it.
func (c statusCache) check(name string, ttl time.Duration, do func() error) error {
	if c.since(c.read().Successes[name]) < ttl {
		return nil
	}
	err := do()
	// Read the file again, because other calls may have written it. If a failed call has
	// invalidated the cache meanwhile, do not cache the result of do, which may be older than the
	// failure. A failure between the following read and write is not noticed.
	cached := c.read()
	if cached.Generation != c.generation {
		return err
	}
	successes := cached.Successes
	delete(successes, name)
	if err == nil {
		successes[name] = c.now
	}
	maps.DeleteFunc(successes, func(_ string, at time.Time) bool { return c.since(at) >= maxTTL })
	c.write(successes)
	return err
}

// since returns the time since at. For a time in the future, because the clock was set back, it
// returns the maximum duration.
func (c statusCache) since(at time.Time) time.Duration {
	if at.After(c.now) {
		return math.MaxInt64
	}
	return c.now.Sub(at)
}

// invalidateStatus makes the next STATUS check everything.
func invalidateStatus(runDir string) { _ = os.Remove(filepath.Join(runDir, statusFile)) }

// read returns the content of the file, or the zero value if there is no valid file of this boot
// and of this program.
func (c statusCache) read() cachedStatus {
	var s cachedStatus
	data, err := file.ReadRegular(c.path)
	if err != nil || json.Unmarshal(data, &s) != nil || s.Boot != c.boot || s.Program != c.program ||
		s.Successes == nil {
		return cachedStatus{}
	}
	return s
}

// write writes the file. Errors are ignored: the checks are then repeated.
func (c statusCache) write(successes map[string]time.Time) {
	if c.boot == "" || c.program == "" {
		return
	}
	data, err := json.Marshal(cachedStatus{c.boot, c.program, c.generation, successes})
	if err != nil || os.MkdirAll(filepath.Dir(c.path), 0o755) != nil {
		return
	}
	_ = file.WriteNoSync(c.path, data)
}

// bootID returns the id of the current boot of the kernel, or an empty string if it cannot be read.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// programID returns an id of this version of the program, or an empty string if it is unknown.
func programID() string { return fileID("/proc/self/exe") }

// fileID returns an id made from the file's size and modification time. The id is empty if the file
// does not exist or cannot be inspected.
func fileID(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
}
