package nft

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// roleVariable is the environment variable with the role of a process that a test starts. Such a
// process runs the role instead of the tests.
const roleVariable = "SLUICE_TEST_ROLE"

// roles contains the functions that processes of tests run. ns is the namespace of descriptor 3, or
// nil if the process has no such descriptor. The test reads the output of the function. If the
// function returns an error, the process prints the error and exits with status 1.
var roles = map[string]func(ns *netns.NS, stdin *bufio.Reader, args []string) error{
	"apply the named examples": applyNamedExamples,
	"apply alternately":        applyAlternately,
	"apply unprivileged":       applyUnprivileged,
	"send a big batch":         sendBig,
	"give up capabilities":     giveUpCapabilities,
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		rulestest.SetRapidChecks(os.Getenv)
		goleak.VerifyTestMain(m)
	}
	if err := runRole(roles[role]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runRole(role func(*netns.NS, *bufio.Reader, []string) error) error {
	const inherited = 3 // the first of exec.Cmd.ExtraFiles
	ns, err := netns.FromHandle(inherited)
	if err != nil {
		ns = nil
	}
	return role(ns, bufio.NewReader(os.Stdin), os.Args[1:])
}

// A process is a child process of a test.
type process struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr strings.Builder
}

// startProcess starts a process in a role and passes ns, unless it is nil, to the role. The process
// itself runs in the namespace of the calling thread, or in a new one if attr specifies this.
func startProcess(
	t testing.TB, ns *netns.NS, attr *syscall.SysProcAttr, role string, args ...string,
) *process {
	t.Helper()
	if roles[role] == nil {
		t.Fatalf("no role %q", role)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe, args...)}
	p.Env = append(os.Environ(), roleVariable+"="+role)
	p.Stderr = &p.stderr
	p.SysProcAttr = attr
	if ns != nil {
		file := os.NewFile(uintptr(duplicate(t, ns.FD())), "netns")
		defer file.Close()
		p.ExtraFiles = []*os.File{file}
	}
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
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

// duplicate returns a close-on-exec duplicate of the descriptor.
func duplicate(t testing.TB, fd int) int {
	t.Helper()
	dup, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(dup)
	return dup
}

// readLine returns the next line that the process prints.
func (p *process) readLine(t testing.TB) string {
	t.Helper()
	text, err := p.stdout.ReadString('\n')
	if err != nil {
		_ = p.Wait()
		t.Fatalf("process %q: %v\n%s", p.Args, err, p.stderr.String())
	}
	return strings.TrimSuffix(text, "\n")
}

// writeLine writes a line to the process.
func (p *process) writeLine(t testing.TB, text string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, text); err != nil {
		t.Fatal(err)
	}
}
