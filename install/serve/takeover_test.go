package serve_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/servetest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestANewAgentTakesOver checks that each request reaches the old or the new agent during a rolling
// update.
func TestANewAgentTakesOver(t *testing.T) {
	path := socket(t)
	old := start(t, path, serve.Options{Objects: echo})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	answered := make(chan struct{}, 1)
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil {
				c := client.New(client.Options{Socket: path, Timeout: time.Minute})
				if _, err := c.Pod(context.Background(), web); err != nil {
					t.Error(err)
				}
				select {
				case answered <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 10 {
		next := start(t, path, serve.Options{Objects: echo})
		<-answered
		old.stop()
		<-answered
		old = next
	}
	cancel()
	group.Wait()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("files %v, error %v, want only the socket", entries, err)
	}
}

// TestSocketBelongsToTheRunningAgent checks that an old agent that still runs leaves the socket to
// the new agent, and creates the socket again when the new agent exits.
func TestSocketBelongsToTheRunningAgent(t *testing.T) {
	path := socket(t)
	old := start(t, path, serve.Options{Objects: echo})
	next := start(t, path, serve.Options{Objects: echo})
	if _, err := old.client().Pod(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	next.wait(t, "answered success")
	next.stop()
	old.wait(t, "was removed, and was created again")
	if _, err := old.client().Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
	old.wait(t, "answered success")
	if n := len(next.reported()); n != 1 {
		t.Errorf("the new agent has reported %q, want one answer", next.reported())
	}
}

func TestRemovedSocketIsCreatedAgain(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"the socket":    os.Remove,
		"its directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			env := start(t, socket(t), serve.Options{Objects: echo})
			if err := remove(env.path); err != nil {
				t.Fatal(err)
			}
			env.wait(t, "socket "+env.path+" was removed, and was created again")
			if _, err := env.client().Pod(t.Context(), web); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSocketIsCreatedAgainAfterAnotherProcess checks that an agent leaves its path to the socket of
// another process, and creates its own socket again when the process ends.
func TestSocketIsCreatedAgainAfterAnotherProcess(t *testing.T) {
	env := start(t, socket(t), serve.Options{Objects: echo})
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: env.path + ".other", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	other.SetUnlinkOnClose(false)
	if err := os.Rename(env.path+".other", env.path); err != nil {
		t.Fatal(err)
	}
	if reports := env.reported(); len(reports) > 0 || !env.Listening() {
		t.Errorf("reported %q, listening %v, want no reports and true", reports, env.Listening())
	}
	other.Close()
	env.wait(t, "was removed, and was created again")
}

// TestWaitingCallersAreAnsweredAtShutdown checks that connections from before the end of an agent
// are answered, even if they had to wait.
func TestWaitingCallersAreAnsweredAtShutdown(t *testing.T) {
	answering, release := make(chan struct{}), make(chan struct{})
	o := objects{pod: func(ctx context.Context, r source.Ref) ([]byte, bool, error) {
		answering <- struct{}{}
		<-release
		return echo.Pod(ctx, r)
	}}
	env := start(t, socket(t), serve.Options{Objects: o})
	var group sync.WaitGroup
	ask := func() {
		group.Go(func() {
			if _, err := client.New(client.Options{
				Socket: env.path, Timeout: time.Minute,
			}).Pod(context.Background(), web); err != nil {
				t.Error(err)
			}
		})
	}
	for range 64 {
		ask()
		<-answering
	}
	late, err := net.Dial("unix", env.path)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	request := agent.AppendFrame(nil,
		[]byte(`{"version":1,"verb":"pod","namespace":"default","name":"web","uid":"1"}`))
	if _, err := late.Write(request); err != nil {
		t.Fatal(err)
	}
	group.Go(func() { <-answering })
	go env.stop()
	for env.Listening() {
		time.Sleep(time.Millisecond)
	}
	close(release)
	if answer, err := agent.ReadFrame(late, agent.MaxAnswer); err != nil ||
		string(answer) != `{"version":1}` {
		t.Errorf("answer %s, error %v, want an answer without an error", answer, err)
	}
	group.Wait()
}

// TestSocketOfAKilledAgentDoesNotBlock checks that the plugin does not wait for the leftover socket
// of a killed agent.
func TestSocketOfAKilledAgentDoesNotBlock(t *testing.T) {
	path := os.Getenv("SLUICE_TEST_SOCKET")
	if path != "" {
		serve.New(servetest.Fill(serve.Options{Socket: path, Objects: echo})).Run(context.Background())
		return
	}
	path = socket(t)
	command := exec.Command(os.Args[0], "-test.run=^TestSocketOfAKilledAgentDoesNotBlock$")
	command.Env = append(os.Environ(), "SLUICE_TEST_SOCKET="+path)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	c := func() *client.Client {
		return client.New(client.Options{Socket: path, Timeout: time.Minute})
	}
	for c().Ready(t.Context()) != nil {
		time.Sleep(time.Millisecond)
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the killed agent left no socket: %v", err)
	}
	if err := c().Ready(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "no agent listens") {
		t.Errorf("error %v, want that no agent listens", err)
	}
	start(t, path, serve.Options{Objects: echo})
	if err := c().Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
