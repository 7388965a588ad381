package agent

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// Each trouble is told once, its end too; what comes and goes does not flood the events, and an API server that was away hears
// what is wrong then.
func TestAnnouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		away := false
		a := newAnnouncer(func(_ context.Context, e cluster.Event) error {
			if away {
				return errors.New("away")
			}
			events = append(events, e.Reason+" "+e.Message)
			return nil
		}, "node-1", zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.run(ctx)
		disk, rival := notice{"DiskFull", "the disk"}, notice{"RivalWriter", "cilium"}
		for _, step := range []struct {
			name  string
			away  bool
			pass  time.Duration
			wrong []notice
			want  string // the events so far
		}{
			{"nothing was ever wrong", false, 0, nil, ""},
			{"a disk is full", false, 0, []notice{disk}, "DiskFull the disk"},
			{"it still is", false, time.Hour, []notice{disk}, "DiskFull the disk"},
			{"a rival comes", false, 0, []notice{disk, rival}, "DiskFull the disk, RivalWriter cilium"},
			{"all is over", false, time.Second, nil, "DiskFull the disk, RivalWriter cilium, Installed " + recoveredMessage},
			{"the rival is back at once", false, time.Second, []notice{rival}, "DiskFull the disk, RivalWriter cilium, Installed " + recoveredMessage},
			{
				"and after a while still there", false, time.Hour,
				[]notice{rival},
				"DiskFull the disk, RivalWriter cilium, Installed " + recoveredMessage + ", RivalWriter cilium",
			},
			{
				"a trouble that nobody can be told", true, time.Minute,
				[]notice{disk, rival},
				"DiskFull the disk, RivalWriter cilium, Installed " + recoveredMessage + ", RivalWriter cilium",
			},
			{
				"and now can", false, time.Minute,
				[]notice{disk, rival},
				"DiskFull the disk, RivalWriter cilium, Installed " + recoveredMessage + ", RivalWriter cilium, DiskFull the disk",
			},
		} {
			away = step.away
			a.set(step.wrong)
			synctest.Wait()
			time.Sleep(step.pass)
			synctest.Wait()
			if got := strings.Join(events, ", "); got != step.want {
				t.Errorf("%s: told %s\nwant %s", step.name, got, step.want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// Each pass over the node says again what is wrong, and an API server that is away is not asked each time.
func TestAnnouncerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		a := newAnnouncer(func(context.Context, cluster.Event) error { asked.Add(1); return errors.New("away") }, "node-1", zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.run(ctx)
		for range 10 {
			a.set([]notice{{"DiskFull", "the disk"}})
			synctest.Wait()
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times at once", n)
		}
		time.Sleep(announceRetry + time.Second)
		synctest.Wait()
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times with one retry", n)
		}
		cancel()
		synctest.Wait()
	})
}
