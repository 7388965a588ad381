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

// A clock executes plugins and records the duration of each.
type clock struct {
	invoke.Exec

	mu        sync.Mutex
	durations map[string][]time.Duration // by plugin name
}

// ExecPlugin implements [invoke.Exec].
func (c *clock) ExecPlugin(
	ctx context.Context, path string, stdin []byte, environ []string,
) ([]byte, error) {
	begin := time.Now()
	out, err := c.Exec.ExecPlugin(ctx, path, stdin, environ)
	c.mu.Lock()
	defer c.mu.Unlock()
	name := filepath.Base(path)
	c.durations[name] = append(c.durations[name], time.Since(begin))
	return out, err
}

// String returns the medians.
func (c *clock) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.durations)) {
		durations := slices.Sorted(slices.Values(c.durations[name]))
		parts = append(parts,
			fmt.Sprintf("%s %v", name, durations[len(durations)/2].Round(100*time.Microsecond)))
	}
	return strings.Join(parts, ", ")
}
