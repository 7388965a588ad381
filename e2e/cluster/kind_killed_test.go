package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// The variable makes the test binary a process that makes a cluster in the folder.
const kindVictim = "SLUICE_TEST_KIND_VICTIM"

func TestKindLeavesNothingWhenTheProcessIsKilled(t *testing.T) {
	if parent := os.Getenv(kindVictim); parent != "" {
		c, err := cluster.StartKind(t.Context(), cluster.Options{
			Dir: parent, Log: os.Stdout, NodeImage: os.Getenv("E2E_NODE_IMAGE"),
		})
		t.Fatalf("nobody has killed it: %v, %v", c, err)
	}
	mustBeForKind(t)
	before, parent := footprint(t), t.TempDir()
	victim := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), kindVictim+"="+parent)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	// kubeadm is at work in a node then.
	reached := false
	for s := bufio.NewScanner(out); !reached && s.Scan(); {
		t.Log(s.Text())
		reached = strings.Contains(s.Text(), "Starting control-plane")
	}
	_, _ = victim.Process.Kill(), victim.Wait()
	if !reached {
		t.Fatal("it came to an end by itself")
	}
	eventually(t, "its folder is gone", func(context.Context) error {
		left, err := os.ReadDir(parent)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%v", left)
		}
		return err
	})
	same(t, before)
}
