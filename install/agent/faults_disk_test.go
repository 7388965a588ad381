package agent_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// TestAgentRecoversFromFullDisks checks that an agent with a full directory names the file that it
// cannot write, leaves no incomplete file, and becomes ready once there is space.
func TestAgentRecoversFromFullDisks(t *testing.T) {
	t.Parallel() // mostly waits
	if !filetest.Private(t) {
		return
	}
	for _, row := range []struct {
		dir, part, file string
		ready           bool // while the disk is full
	}{
		// The plugin can read pods through the agent's socket.
		{"run", observe.Kubeconfig, "sluice-cni-kubeconfig", true},
		{"conf", observe.Configuration, "conf", false},
		{"bin", observe.Configuration, "sluice-cni", false},
		{"state", observe.Configuration, "state", false},
	} {
		t.Run(row.dir, func(t *testing.T) {
			tn := newTestNode(t)
			disk := filetest.Disk(t, "64k")
			if err := os.MkdirAll(tn.path(row.dir), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount(disk, tn.path(row.dir), "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(tn.path(row.dir), unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			if row.dir == "conf" {
				tn.writeFile("conf/10-net.conflist", primary)
			}
			free := filetest.Fill(t, disk)
			r := tn.run(nil)
			r.until("the full disk is reported", func() bool {
				text := r.reasons(row.part)
				return strings.HasPrefix(text, "false ") &&
					strings.Contains(text, "no space left on device") &&
					strings.Contains(text, row.file)
			})
			if row.ready {
				r.waitReady()
			} else if r.readiness().Ready {
				t.Errorf("the agent is ready although the disk of %s is full", row.dir)
			}
			// The agent may be trying to write again, so that a temporary file exists now.
			r.until("no temporary file remains", func() bool {
				return !slices.ContainsFunc(tn.files(row.dir), func(file string) bool {
					return strings.Contains(file, ".tmp")
				})
			})
			free()
			r.until("the file is written", func() bool {
				return !strings.HasPrefix(r.reasons(row.part), "false ")
			})
			r.waitReady()
			r.end()
		})
	}
}
