package compat_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// roleVariable is the environment variable with the role of a test process. A process with a role
// calls the function of the role instead of the tests.
const roleVariable = "SLUICE_TEST_ROLE"

// roles contains the functions of test processes, by role. ns is the network namespace of
// descriptor 3, or nil if the process has no such descriptor. The test reads the output of the
// process. If the function returns an error, the process prints it and fails.
var roles = map[string]func(ns *netns.NS, stdin *bufio.Reader) error{
	"dial":                 dial,
	"apply alternately":    applyAlternately,
	"apply as a container": applyAsContainer,
	"give up capabilities": giveUpCapabilities,
	"apply without nft":    applyWithoutNFT,

	"apply without entering": applyWithoutEntering,
	"apply without matches":  applyWithoutMatches,

	"apply without writing legacy": applyWithoutWritingLegacy,
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		rulestest.SetRapidChecks(os.Getenv)
		goleak.VerifyTestMain(m)
	}
	const inherited = 3 // the first of exec.Cmd.ExtraFiles
	ns, err := netns.FromHandle(inherited)
	if err != nil {
		ns = nil
	}
	if err := roles[role](ns, bufio.NewReader(os.Stdin)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A process is a test process that a test started.
type process struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr strings.Builder
}

// start starts a test process with a role. A namespace, if not nil, becomes descriptor 3 of the
// process.
func start(t testing.TB, ns *netns.NS, role string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe)}
	p.Env = append(os.Environ(), roleVariable+"="+role)
	p.Stderr = &p.stderr
	if ns != nil {
		dup, err := syscall.Dup(ns.FD())
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(dup), "netns")
		defer file.Close()
		p.ExtraFiles = []*os.File{file}
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(stdout)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// line returns the next line that the process prints.
func (p *process) line(t testing.TB) string {
	t.Helper()
	text, err := p.stdout.ReadString('\n')
	if err != nil {
		_ = p.Wait()
		t.Fatalf("read a line of the test process: %v\n%s", err, p.stderr.String())
	}
	return strings.TrimSuffix(text, "\n")
}
