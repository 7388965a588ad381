package machine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// program is the path of cmd/node, which is built once.
var program string

// TestMain runs the tests. With MACHINE_SPEC, it instead starts a machine, and waits until a test
// kills the process.
func TestMain(m *testing.M) {
	if spec := os.Getenv("MACHINE_SPEC"); spec != "" {
		runKilledCaller(spec)
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "machine-test")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "node")
	build := exec.Command("go", "build", "-o", program, "../cmd/node")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return m.Run()
}

// runKilledCaller starts a machine, prints the process ID of its init and its directory, and waits
// to be killed.
func runKilledCaller(spec string) {
	var s machine.Spec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		panic(err)
	}
	dir, err := machine.NewDir(os.Getenv("MACHINE_PARENT"))
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(dir.Root(), name)); err != nil {
			panic(err)
		}
	}
	m, err := machine.Start(context.Background(), os.Getenv("MACHINE_PROGRAM"), dir, s)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(m.PID()) + " " + m.Dir() + "\n")
	for {
		time.Sleep(time.Hour) // without a timer, the runtime would report a deadlock
	}
}

// startedMachine is a machine that another process has started.
type startedMachine struct {
	caller *exec.Cmd
	init   int
	dir    string
}

// startInOtherProcess starts another process that starts a small machine in parent. The process
// runs until it is killed or the test ends.
func startInOtherProcess(t *testing.T, parent string) startedMachine {
	t.Helper()
	unused, spec := smallMachine(t)
	if err := unused.Remove(); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MACHINE_SPEC="+string(encoded), "MACHINE_PARENT="+parent,
		"MACHINE_PROGRAM="+program)
	// The process has its own process group, like a shell job. A terminal sends an interrupt to the
	// group.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	init, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return startedMachine{cmd, init, dir}
}

func TestNothingOutlivesTheCaller(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		sign   int // of the ID for kill: 1 means the process, -1 its process group
	}{
		{"SIGKILL to the process", unix.SIGKILL, 1},
		{"SIGINT to the process group", unix.SIGINT, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := t.TempDir()
			before := footprint(t)
			m := startInOtherProcess(t, parent)
			inside := namespaces(t, m.init)
			if err := unix.Kill(c.sign*m.caller.Process.Pid, c.signal); err != nil {
				t.Fatal(err)
			}
			_ = m.caller.Wait()
			rulestest.Eventually(t, "the machine's processes have ended", func() bool {
				return len(processesIn(t, inside)) == 0
			})
			rulestest.Eventually(t, "the machine's directory is removed", func() bool {
				return isEmpty(t, parent)
			})
			mustBeRemoved(t, m.dir)
			mustEqualFootprint(t, before)
		})
	}
}

func TestNextMachineRemovesLeftoversOfAKilledOne(t *testing.T) {
	parent := t.TempDir()
	before := footprint(t)
	other := startInOtherProcess(t, parent) // running, must not be affected
	m := startInOtherProcess(t, parent)
	inside := namespaces(t, m.init)
	if err := unix.Kill(parentOf(t, m.init), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the machine's processes have ended", func() bool {
		return len(processesIn(t, inside)) == 0
	})
	if _, err := os.Stat(m.dir); err != nil {
		t.Fatalf("the directory was removed too early: %v", err)
	}
	next, err := machine.NewDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	mustBeRemoved(t, m.dir)
	if _, err := os.Stat(other.dir); err != nil {
		t.Errorf("the directory of a running machine was removed: %v", err)
	}
	if err := next.Remove(); err != nil {
		t.Error(err)
	}
	_ = other.caller.Process.Kill()
	rulestest.Eventually(t, "the other machine is removed", func() bool {
		return isEmpty(t, parent)
	})
	mustEqualFootprint(t, before)
}

// isEmpty reports whether a directory is empty.
func isEmpty(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries) == 0
}
