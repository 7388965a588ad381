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

// kindChildEnv is an environment variable with the directory in which the test binary starts a
// cluster. Without the variable, the binary runs the tests.
const kindChildEnv = "SLUICE_TEST_KIND_KILLED"

func TestKindLeavesNothingWhenTheProcessIsKilled(t *testing.T) {
	if parent := os.Getenv(kindChildEnv); parent != "" {
		c, err := cluster.StartKind(t.Context(), cluster.Options{
			Dir: parent, Log: os.Stdout, NodeImage: os.Getenv("E2E_NODE_IMAGE"),
		})
		t.Fatalf("StartKind returned before the process was killed: cluster %v, error %v", c, err)
	}
	requireKind(t)
	before, parent := footprint(t), t.TempDir()
	child := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), kindChildEnv+"="+parent)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	// kind prints "Starting control-plane" before it runs kubeadm in a node.
	reached := false
	for s := bufio.NewScanner(out); !reached && s.Scan(); {
		t.Log(s.Text())
		reached = strings.Contains(s.Text(), "Starting control-plane")
	}
	_, _ = child.Process.Kill(), child.Wait()
	if !reached {
		t.Fatal("the process exited before it was killed")
	}
	eventually(t, "the cluster's directory is removed", func(context.Context) error {
		remaining, err := os.ReadDir(parent)
		if err == nil && len(remaining) > 0 {
			err = fmt.Errorf("remaining files: %v", remaining)
		}
		return err
	})
	mustEqualFootprint(t, before)
}
