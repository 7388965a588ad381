package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/settings"
)

// Environment variables of an agent in its own process. childEnv contains the address of the API
// server; if it is set, the test binary runs an agent. The others contain paths: of the token, of
// the certificate authority, and of the no-op executable.
const (
	childEnv      = "SLUICE_TEST_AGENT"
	childTokenEnv = "SLUICE_TEST_TOKEN"
	childCAEnv    = "SLUICE_TEST_CA"
	childNoopEnv  = "SLUICE_TEST_NOOP"
)

// runChild runs an agent with the settings in the environment, and returns the exit status.
func runChild() int {
	v, err := settings.Read(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log, err := logs.New("debug", true, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a, err := agent.New(agent.Options{
		Settings: v, Version: "test", Noop: os.Getenv(childNoopEnv), Log: log,
		API: apiclient.Options{
			Server: os.Getenv(childEnv), TokenFile: os.Getenv(childTokenEnv), CAFile: os.Getenv(childCAEnv),
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the test has ended
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := a.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A child is an agent in its own process.
type child struct {
	*running
	process *exec.Cmd
}

// startChild starts an agent in its own process, and waits until it is ready.
func (tn *testNode) startChild() *child {
	tn.t.Helper()
	self, err := os.Executable()
	if err != nil {
		tn.t.Fatal(err)
	}
	c := &child{
		&running{tn, func() {}, make(chan error, 1)}, exec.CommandContext(tn.t.Context(), self),
	}
	c.process.Env = []string{
		childEnv + "=" + tn.URL(), childTokenEnv + "=" + tn.TokenFile(), childCAEnv + "=" + tn.CAFile(),
		childNoopEnv + "=" + tn.path("image/noop"), "GORACE=atexit_sleep_ms=0",
	}
	for name, value := range tn.env {
		c.process.Env = append(c.process.Env, name+"="+value)
	}
	c.process.Stderr = tn.t.Output()
	// When the test process ends, the pipe is closed, and the agent exits. Pdeathsig is not used,
	// because the thread that starts a process may end before the test.
	if _, err := c.process.StdinPipe(); err != nil {
		tn.t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		tn.t.Fatal(err)
	}
	go func() { c.done <- c.process.Wait() }()
	c.waitReady()
	return c
}

// signal sends a signal to the agent.
func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.process.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// kill kills the agent, and waits for its end.
func (c *child) kill() {
	c.t.Helper()
	c.signal(syscall.SIGKILL)
	var killed *exec.ExitError
	if err := <-c.done; !errors.As(err, &killed) {
		c.t.Errorf("the agent ended with %v, want that the signal ended it", err)
	}
}
