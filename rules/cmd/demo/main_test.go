package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

const (
	// demoVariable is an environment variable. If it is set, the test binary runs the command.
	demoVariable = "SLUICE_RUN_DEMO"
	// netnsDirVariable is an environment variable with a directory. The command mounts the
	// directory at /run/netns in its own mount namespace.
	netnsDirVariable = "SLUICE_DEMO_NETNS"
)

func TestMain(m *testing.M) {
	if os.Getenv(demoVariable) != "" {
		if dir := os.Getenv(netnsDirVariable); dir != "" {
			if err := errors.Join(os.MkdirAll(runNetns, 0o755),
				unix.Mount(dir, runNetns, "", unix.MS_BIND, "")); err != nil {
				panic(err)
			}
		}
		main()
	}
	os.Exit(m.Run())
}

// demo returns the command that runs the demonstration. path is a copy of the test binary, or the
// test binary itself.
func demo(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = append(os.Environ(), demoVariable+"=1")
	return cmd
}

// runNetns is the directory of the named network namespaces.
const runNetns = "/run/netns"

// host is a network namespace in which the demo runs, with its own directory of named namespaces.
// Therefore no other process changes the files and interfaces that the test compares.
type host struct {
	*netns.NS
	netnsDir string // mounted at runNetns for the demo
}

// newHost returns a host that exists until the test ends.
func newHost(t *testing.T) host { return host{netnstest.New(t), t.TempDir()} }

// demo returns the command for the host. The command has its own mount namespace.
func (h host) demo(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := demo(t, testBinary(t))
	cmd.Env = append(cmd.Env, netnsDirVariable+"="+h.netnsDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: unix.CLONE_NEWNS}
	return cmd
}

// resources lists the host's interfaces and named namespaces.
func (h host) resources(t *testing.T) []string {
	t.Helper()
	var found []string
	err := h.Do(func() error {
		interfaces, err := net.Interfaces()
		for _, i := range interfaces {
			found = append(found, "interface "+i.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(h.netnsDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range entries {
		found = append(found, "namespace "+n.Name())
	}
	return found
}

// testBinary returns the path of the test binary.
func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDemoShowsTheExpectedResults(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1337)
	h := newHost(t)
	before := h.resources(t)
	start := time.Now()
	var out []byte
	err := h.Do(func() (err error) {
		out, err = h.demo(t).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if elapsed := time.Since(start); elapsed > time.Minute {
		t.Errorf("the demo took %v, want at most a minute", elapsed)
	}
	text := string(out)
	for _, want := range []string{
		"table inet sluice {", "outbound, asked for [2001:db8::9]:80 → outside",
		"inbound, asked for 10.244.1.5:8080 → application",
		": captured: outbound to the proxy (15001)",
		"> 10.9.9.9:3306: not captured: excluded outbound port 3306",
		" 0 past the proxy, 0 failed", "All results are as expected.",
		"every packet has the same outcome: equivalent", "out tcp 10.244.1.5:40000 > 192.0.2.10:3306",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
	if lines := strings.Count(text, "\n"); lines > 110 || strings.Contains(text, "\x1b") ||
		strings.Contains(text, "!!") {
		t.Errorf("%d lines, want at most 110 without colors and without unexpected results:\n%s",
			lines, text)
	}
	if after := h.resources(t); !slices.Equal(after, before) {
		t.Errorf("interfaces and namespaces: before %q, after %q, want no change", before, after)
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1337)
	h := newHost(t)
	before := h.resources(t)
	// If the test was started with nohup, the demo would inherit that SIGHUP is ignored.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGHUP)
	defer signal.Stop(handled)
	for _, tc := range []struct {
		after  string // the demo is interrupted when it prints a line that begins with this text
		signal syscall.Signal
	}{
		{"", unix.SIGINT},
		{"1. ", unix.SIGINT},
		{"2. ", unix.SIGTERM},
		{"2. ", unix.SIGHUP},
		{"3. ", unix.SIGINT},
		{"4. ", unix.SIGINT},
		{"ok app (uid 1000)   → tcp 192.0.2.7:80", unix.SIGTERM}, // under load
	} {
		t.Run(tc.signal.String()+" after "+strconv.Quote(tc.after), func(t *testing.T) {
			cmd := h.demo(t)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Do(cmd.Start); err != nil {
				t.Fatal(err)
			}
			interruptAfter(t, cmd, out, tc.after, tc.signal)
			err = cmd.Wait()
			var exit *exec.ExitError
			switch {
			case tc.after == "" && errors.As(err, &exit) && !exit.Exited():
				// The signal arrived before the command handled signals.
			case !errors.As(err, &exit) || exit.ExitCode() != exitSignal+int(tc.signal):
				t.Errorf("the demo ended with %v, want exit code %d; stderr: %s", err,
					exitSignal+int(tc.signal), stderr.String())
			case !strings.Contains(stderr.String(), "nothing is left"):
				t.Errorf("stderr is %q, want a message that nothing is left", stderr.String())
			}
			if after := h.resources(t); !slices.Equal(after, before) {
				t.Errorf("interfaces and namespaces: before %q, after %q, want no change", before,
					after)
			}
			// A namespace without a process, file or interface does not persist.
			if err := unix.Kill(-cmd.Process.Pid, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("signal 0 to the demo's processes: error %v, want %v", err, unix.ESRCH)
			}
		})
	}
}

// interruptAfter sends the signal when a line of the output has the given prefix, or immediately if
// the prefix is empty.
func interruptAfter(t *testing.T, cmd *exec.Cmd, out io.Reader, prefix string, s syscall.Signal) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for reached := prefix == ""; !reached && lines.Scan(); {
		reached = strings.HasPrefix(lines.Text(), prefix)
	}
	if err := cmd.Process.Signal(s); err != nil {
		t.Errorf("the demo ended before a line that begins with %q: %v", prefix, err)
	}
	_, _ = io.Copy(io.Discard, out)
}

func TestWithoutRootTheDemoNamesTheRequirement(t *testing.T) {
	netnstest.RequireRoot(t)
	const nobody = 65534
	for _, tc := range []struct {
		name string
		attr syscall.SysProcAttr
	}{
		{
			"another user",
			syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
		},
		{"root of a user namespace with one user", syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{Size: 1}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Only root may be able to enter the directory of the executable.
			cmd := demo(t, "/proc/self/exe")
			cmd.SysProcAttr, cmd.Dir = &tc.attr, "/"
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitUnsupported {
				t.Errorf("the demo ended with %v, want exit code %d", err, exitUnsupported)
			}
			if text := stderr.String(); strings.Count(text, "\n") != 1 ||
				!strings.Contains(text, "needs root") || stdout.Len() > 0 {
				t.Errorf("stdout %q, stderr %q, want one line on stderr that names the requirement",
					stdout.String(), text)
			}
		})
	}
}
