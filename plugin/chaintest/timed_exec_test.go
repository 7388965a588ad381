package chaintest_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
)

// A timedExec executes plugins and records the duration of each execution.
type timedExec struct {
	invoke.Exec

	mu        sync.Mutex
	durations map[string][]time.Duration // by plugin name
}

// ExecPlugin implements [invoke.Exec].
func (e *timedExec) ExecPlugin(
	ctx context.Context, path string, stdin []byte, environ []string,
) ([]byte, error) {
	begin := time.Now()
	out, err := e.Exec.ExecPlugin(ctx, path, stdin, environ)
	e.mu.Lock()
	defer e.mu.Unlock()
	name := filepath.Base(path)
	e.durations[name] = append(e.durations[name], time.Since(begin))
	return out, err
}

// String returns the median duration of each plugin.
func (e *timedExec) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var medians []string
	for _, name := range slices.Sorted(maps.Keys(e.durations)) {
		durations := slices.Sorted(slices.Values(e.durations[name]))
		medians = append(medians,
			fmt.Sprintf("%s %v", name, durations[len(durations)/2].Round(100*time.Microsecond)))
	}
	return strings.Join(medians, ", ")
}
