package chaintest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestManyConcurrentADDsSucceed adds many pods concurrently, as on a node that starts, and logs the
// median duration of each plugin.
func TestManyConcurrentADDsSucceed(t *testing.T) {
	t.Parallel()
	pods := make([]*pod, repetitions(8, 100))
	n := newNode(t)
	c := chain{version: latest, fields: map[string]any{ // on a busy machine, the requests take long
		"api_budget": "2m", "api_try_timeout": "1m",
	}}
	for i := range pods {
		pods[i] = n.newPod(t, "sidecar")
	}
	var wg sync.WaitGroup
	begin := time.Now()
	for _, p := range pods {
		wg.Go(func() {
			if _, err := p.add(t, c); err != nil {
				t.Errorf("ADD of pod %s: %v", p.name, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d concurrent ADDs: all complete after %v; median per plugin: %v", len(pods),
		time.Since(begin), n.exec)
	n.checkLines(t, "ADD", len(pods))
	n.checkRecords(t, pods...)
	for _, p := range pods {
		if p.rules(t) == "" {
			t.Errorf("pod %s has no rules", p.name)
		}
		must(t, p.del(t, c))
	}
	n.checkRecords(t)
}

// checkLines fails the test unless the log file has the given number of lines of the verb, and all
// lines are complete.
func (n *node) checkLines(t testing.TB, verb string, want int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.run, "sluice-cni*.log"))
	if err != nil || len(files) != 1 {
		t.Errorf("log files: %q, error %v; want one", files, err)
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
				t.Errorf("%s: the line %q is not JSON: %v", file, text, err)
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
