package chaintest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestACrowd adds many pods at once, as a node does when it starts, and tells what our plugin adds to the chain's time.
func TestACrowd(t *testing.T) {
	t.Parallel()
	size := times(12, 100)
	n := newNode(t)
	var medians []time.Duration
	for _, c := range []chain{{version: latest, without: true}, {version: latest}} {
		pods := make([]*pod, size)
		for i := range pods {
			pods[i] = n.newPod(t, "sidecar")
		}
		took := make([]time.Duration, size)
		var wg sync.WaitGroup
		begin := time.Now()
		for i, p := range pods {
			wg.Go(func() {
				if _, err := p.add(t, c); err != nil {
					t.Errorf("ADD of pod %s: %v", p.name, err)
				}
				took[i] = time.Since(begin)
			})
		}
		wg.Wait()
		slices.Sort(took)
		medians = append(medians, took[size/2])
		t.Logf("%d ADDs at once, ours in the chain: %-5v median %v, all done after %v", size, !c.without, took[size/2], took[size-1])
		if !c.without {
			n.wantLines(t, "ADD", size)
		}
		for _, p := range pods {
			if has := p.rules(t) != ""; has == c.without {
				t.Errorf("pod %s has rules: %v", p.name, has)
			}
			if err := p.del(t, c); err != nil {
				t.Errorf("DEL of pod %s: %v", p.name, err)
			}
		}
	}
	t.Logf("our plugin adds %v at the median of %d", medians[1]-medians[0], size)
	n.wantKept(t)
}

// wantLines fails the test unless the log file has so many lines of the verb, and nothing but whole lines.
func (n *node) wantLines(t testing.TB, verb string, want int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.run, "sluice-cni*.log"))
	if err != nil || len(files) != 1 {
		t.Errorf("log files: %q, %v; want one", files, err)
	}
	got := 0
	for _, file := range files {
		log, err := os.ReadFile(file)
		must(t, err)
		for text := range strings.Lines(string(log)) {
			var line struct {
				Msg string `json:"msg"`
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Errorf("%s: %v: %q", file, err, text)
			}
			if line.Msg == verb {
				got++
			}
		}
	}
	if got != want {
		t.Errorf("%d lines of %s in the log, want %d", got, verb, want)
	}
}
