package podcache_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// cachedStatus adds a pod with the fields in addition to its name, and returns its cached status.
func cachedStatus(t *testing.T, env *testEnv, fields string) podcache.PodStatus {
	t.Helper()
	env.server.Put(`{metadata: {name: new, uid: c}, ` + fields + `}`)
	synctest.Wait()
	item, ok := env.Item("default", "new")
	if !ok {
		t.Fatal("the pod is not cached")
	}
	return item.PodStatus
}

func TestPodStatus(t *testing.T) {
	const failed = `{exitCode: 126, message: "no redirect", startedAt: "2026-11-20T12:00:00Z"}`
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		fields string
		want   podcache.PodStatus
	}{
		"a new pod": {`spec: {nodeName: here}`, podcache.PodStatus{}},
		"a pod that runs": {
			`spec: {nodeName: here, restartPolicy: Always, schedulerName: default-scheduler, serviceAccountName: web}, status: {phase: Running}`,
			podcache.PodStatus{
				Phase: "Running", RestartPolicy: "Always", SchedulerName: "default-scheduler",
				ServiceAccount: "web",
			},
		},
		"an init container that fails": {
			`spec: {nodeName: here}, status: {phase: Pending, initContainerStatuses: [
				{name: istio-validation, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: ` + failed + `}}, {name: b, state: {waiting: {}}}]}`,
			podcache.PodStatus{Phase: "Pending", Init: []podcache.InitContainer{
				{
					Name: "istio-validation",
					Last: &podcache.Termination{
						ExitCode: 126, Message: "no redirect", Started: noon,
					},
				},
			}},
		},
		"an init container that succeeds after a failure": {
			`spec: {nodeName: here}, status: {phase: Running, initContainerStatuses: [
				{name: istio-validation, state: {terminated: {exitCode: 0}}, lastState: {terminated: {exitCode: 126, startedAt: "x"}}}]}`,
			podcache.PodStatus{Phase: "Running", Init: []podcache.InitContainer{
				{
					Name: "istio-validation", Succeeded: true,
					Last: &podcache.Termination{ExitCode: 126},
				},
			}},
		},
		"an invalid status": {
			`spec: {nodeName: here}, status: {phase: Running, initContainerStatuses: 7}`,
			podcache.PodStatus{Phase: "Running"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(row.want, cachedStatus(t, start(t), row.fields)); diff != "" {
					t.Errorf("status (-want +got)\n%s", diff)
				}
			})
		})
	}
}

func TestAPodThatIsBeingDeletedHasNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := start(t)
		env.server.Put(`{metadata: {name: new, uid: c, deletionTimestamp: "2026-11-20T12:00:00Z"}, spec: {nodeName: here}}`)
		synctest.Wait()
		if item, ok := env.Item("default", "new"); !ok || !item.PodStatus.Deleted ||
			item.PodStatus.HasEnded() {
			t.Errorf("cached %v: %+v, want a pod that is being deleted and has not ended", ok, item)
		}
		if _, ok := env.Item("default", "gone"); ok {
			t.Error("a missing pod is cached")
		}
	})
}

func TestTotalSizeOfMessagesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []string
		for i := range 10 {
			list = append(list,
				fmt.Sprintf(`{name: c%d, lastState: {terminated: {exitCode: 1, message: %s}}}`, i,
					strings.Repeat("x", 4000)))
		}
		status := cachedStatus(t, start(t), `spec: {nodeName: here}, status: {initContainerStatuses: [`+
			strings.Join(list, ",")+`]}`)
		length := 0
		for _, c := range status.Init {
			length += len(c.Last.Message)
		}
		// A third message would exceed the limit of 8 KiB.
		if len(status.Init) != 10 || length != 8000 {
			t.Errorf("%d containers with %d bytes, want 10 with 8000", len(status.Init), length)
		}
	})
}

// TestChangesAreReported checks that Changed is called for each changed pod, and with empty names
// after a new list.
func TestChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.StartInMemory(t)
		server.Put(webPod)
		var mu sync.Mutex
		var reported []string
		cache, err := podcache.New(podcache.Options{
			Client: client(t, optionsFor(server)), NodeName: "here", Fetch: source.Fallback(),
			Changed: func(namespace, name string) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, namespace+"/"+name)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, cache)
		defer stop()
		for _, step := range []struct {
			change func()
			want   string
		}{
			{func() {}, "/"},
			{func() {
				server.Put(`{metadata: {name: new, uid: c}, spec: {nodeName: here}}`)
			}, "default/new"},
			{func() { server.DeletePod("default", "new") }, "default/new"},
		} {
			step.change()
			synctest.Wait()
			mu.Lock()
			if got := strings.Join(reported, " "); !strings.HasSuffix(got, step.want) {
				t.Errorf("reported %q, want %q", got, step.want)
			}
			reported = nil
			mu.Unlock()
		}
	})
}

// TestLongTextsAreNotCached checks that texts that are too long to be valid do not increase the
// size of a cached status.
func TestLongTextsAreNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env, long := start(t), strings.Repeat("x", 200<<10)
		status := cachedStatus(t, env, `spec: {nodeName: here, schedulerName: `+long+`, serviceAccountName: `+long+`, restartPolicy: `+long+`},
			status: {phase: `+long+`, initContainerStatuses: [{name: `+long+
			`, state: {terminated: {exitCode: 0}}}]}`)
		if diff := cmp.Diff(podcache.PodStatus{Init: []podcache.InitContainer{{Succeeded: true}}},
			status); diff != "" {
			t.Errorf("status (-want +got)\n%.500s", diff)
		}
	})
}
