package machine_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// smallMachine returns a directory and a description for a machine with a shell and four services:
// one runs forever, one exits at once, one ignores SIGTERM, and one waits for a socket that does
// not exist.
func smallMachine(t *testing.T) (*machine.Dir, machine.Spec) {
	t.Helper()
	dir, err := machine.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(dir.Root(), name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, machine.Spec{
		Hostname: "small", Binds: map[string]string{"/usr": "/usr"},
		Addresses: []string{"10.89.0.2/24", "fd00:89::2/64"},
		Routes:    []string{"10.96.0.0/16", "fd00:96::/112"},
		Env:       []string{"PATH=/usr/bin:/usr/sbin"},
		Services: []machine.Service{
			{Name: "forever", Argv: []string{"sh", "-c", "echo started; exec sleep 1000"}},
			{Name: "short", Argv: []string{"sh", "-c", "echo started; exit 3"}},
			{
				Name: "ignores-sigterm",
				Argv: []string{"sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done"},
			},
			{Name: "waits", Argv: []string{"sleep", "1000"}, After: "unix:/run/there.sock"},
		},
	}
}

// start returns a machine that is closed at the end of the test.
func start(t *testing.T) *machine.Machine {
	t.Helper()
	dir, spec := smallMachine(t)
	m, err := machine.Start(t.Context(), program, dir, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// shell returns the output of a shell script in the machine.
func shell(t *testing.T, m *machine.Machine, script string) string {
	t.Helper()
	out, err := m.Command(t.Context(), "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestMachineHasItsOwnNamespaces(t *testing.T) {
	m := start(t)
	for _, c := range []struct{ reason, script, want string }{
		{"host name", "hostname", "small"},
		{"process 1 is init", "tr '\\0' ' ' </proc/1/cmdline | cut -d ' ' -f 2", "init"},
		{
			"no process of the host is visible", "ps -A -o comm= | grep -c machine.test || true",
			"0",
		},
		{
			"eth0 has its addresses",
			"ip -br address show eth0 | grep -o '10.89.0.2/24 fd00:89::2/64'",
			"10.89.0.2/24 fd00:89::2/64",
		},
		{"IPv4 forwarding is enabled", "cat /proc/sys/net/ipv4/ip_forward", "1"},
		{"IPv6 forwarding is enabled", "cat /proc/sys/net/ipv6/conf/all/forwarding", "1"},
		{
			"IPv4 services are routed to eth0", "ip route get 10.96.0.1 | grep -o 'dev eth0 src 10.89.0.2'",
			"dev eth0 src 10.89.0.2",
		},
		{
			"IPv6 services are routed to eth0",
			"ip route get fd00:96::1 | grep -o 'dev eth0.* src fd00:89::2' | wc -l", "1",
		},
		{
			"other addresses are unreachable",
			"ip route get 192.0.2.1 2>&1 | grep -c unreachable", "1",
		},
		{
			"the root has no files of the host", "ls /boot /home /etc 2>/dev/null | wc -l",
			"0",
		},
		{
			"binds are read-only", "touch /usr/x 2>&1 | grep -c 'Read-only'",
			"1",
		},
		{"mounts of services are shared", "findmnt -no PROPAGATION /", "shared"},
		{
			"kernel-wide sysctls are masked",
			"echo 7 >/proc/sys/kernel/panic; cat /proc/sys/kernel/panic", "7",
		},
		{
			"its cgroup is the root of the hierarchy",
			"mkdir /sys/fs/cgroup/pids/x 2>/dev/null || mkdir /sys/fs/cgroup/x; echo made", "made",
		},
		{
			"it has devices and its own pseudo-terminals",
			"ls /dev/pts/ptmx && echo x >/dev/null && echo fine", "/dev/pts/ptmx\nfine",
		},
	} {
		if got := shell(t, m, c.script); got != c.want {
			t.Errorf("%s: %s prints %q, want %q", c.reason, c.script, got, c.want)
		}
	}
}

func TestPathReturnsTheMachinesFile(t *testing.T) {
	m := start(t)
	shell(t, m, "mkdir -p /var/lib/x; echo disk >/var/lib/x/y; echo memory >/run/z")
	for path, want := range map[string]string{"/var/lib/x/y": "disk\n", "/run/z": "memory\n"} {
		if got, err := os.ReadFile(m.Path(path)); string(got) != want {
			t.Errorf("%s contains %q, error %v; want %q", path, got, err, want)
		}
	}
}

func TestRebootKeepsOnlyTheDisk(t *testing.T) {
	m := start(t)
	rulestest.Eventually(t, "the services run", func() bool {
		return strings.Count(logOf(t, m, "forever"), "started") == 1
	})
	shell(t, m,
		"mkdir -p /var/lib; echo 1 >/var/lib/kept; echo 1 >/run/gone; "+
			"ip link add gone type bridge; (sleep 3000 >/dev/null 2>&1 &)")
	shell(t, m, "mkdir /sys/fs/cgroup/pids/gone 2>/dev/null || mkdir /sys/fs/cgroup/gone")
	before, id := namespaces(t, m.PID()), shell(t, m, "cat /proc/sys/kernel/random/boot_id")
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := shell(t, m,
		"ls /var/lib /run /sys/fs/cgroup /sys/fs/cgroup/pids; ip link show gone 2>&1; "+
			"ps -A -o args= | grep '^sleep 3000' || true")
	if strings.Contains(got, "sleep") || !strings.Contains(got, "kept") ||
		strings.Contains(got, "gone\n") {
		t.Errorf("after the reboot: %s\nwant the file kept, nothing named gone and no process sleep",
			got)
	}
	if now := shell(t, m, "cat /proc/sys/kernel/random/boot_id"); now == id || len(now) != 36 {
		t.Errorf("boot ID %s, want a UUID other than %s", now, id)
	}
	if remaining := processesIn(t, before); len(remaining) > 0 {
		t.Errorf("processes from before the reboot: %q, want none", remaining)
	}
	rulestest.Eventually(t, "the services run again", func() bool {
		return strings.Count(logOf(t, m, "forever"), "started") == 2
	})
}

func TestServices(t *testing.T) {
	m := start(t)
	starts := func(name string) int { return strings.Count(logOf(t, m, name), "started") }
	rulestest.Eventually(t, "a service is started", func() bool { return starts("forever") == 1 })
	rulestest.Eventually(t, "a service has only the descriptors 0, 1 and 2", func() bool {
		return shell(t, m, `ls /proc/$(pgrep -o -x sleep || echo none)/fd | xargs`) == "0 1 2"
	})
	rulestest.Eventually(t, "an exited service is restarted", func() bool { return starts("short") > 2 })
	if err := m.KillService(t.Context(), "forever"); err != nil {
		t.Error(err)
	}
	rulestest.Eventually(t, "a killed service is restarted", func() bool {
		return starts("forever") == 2
	})
	if log := logOf(t, m, "forever"); !strings.Contains(log, "signal 9") {
		t.Errorf("the log does not contain the signal: %s", log)
	}

	if err := errors.Join(m.StopService(t.Context(), "forever"),
		m.StopService(t.Context(), "forever")); err != nil {
		t.Error(err)
	}
	rulestest.Eventually(t, "the service that ignores SIGTERM runs", func() bool {
		return starts("ignores-sigterm") == 1
	})
	if err := m.StopService(t.Context(), "ignores-sigterm"); err != nil ||
		!strings.Contains(logOf(t, m, "ignores-sigterm"), "signal 9") {
		t.Errorf("stop of a service that ignores SIGTERM: error %v, log %q; want signal 9", err,
			logOf(t, m, "ignores-sigterm"))
	}
	begin := starts("short")
	rulestest.Eventually(t, "other services are still restarted", func() bool { return starts("short") > begin+2 })
	if starts("forever") != 2 {
		t.Error("a stopped service was started")
	}
	if err := m.KillService(t.Context(), "forever"); err == nil {
		t.Error("KillService of a stopped service succeeds, want an error")
	}
	if err := m.StartService(t.Context(), "forever"); err != nil {
		t.Error(err)
	}
	rulestest.Eventually(t, "an enabled service is started again", func() bool {
		return starts("forever") == 3
	})

	const countSleeps = "ps -A -o args= | grep -c '^sleep 1000' || true"
	if got := shell(t, m, countSleeps); got != "1" {
		t.Errorf("%s processes sleep 1000, want only the service without a socket to wait for", got)
	}
	listener := m.Command(t.Context(), "perl", "-MIO::Socket::UNIX", "-e",
		`$s = IO::Socket::UNIX->new(Local => "/run/there.sock", Listen => 9) or die; <STDIN>`)
	input, err := listener.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = input.Close(), listener.Wait() }()
	if err := listener.Start(); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "a service is started when its socket accepts connections", func() bool {
		return shell(t, m, countSleeps) == "2"
	})
	if err := m.StopService(t.Context(), "none"); err == nil ||
		!strings.Contains(err.Error(), "no such service") {
		t.Errorf("stop of an unknown service: %v, want \"no such service\"", err)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	m := start(t)
	shell(t, m, "(sh -c 'sleep 0 &' & ) >/dev/null 2>&1")
	rulestest.Eventually(t, "there is no zombie process", func() bool {
		return shell(t, m, "ps -A -o stat= | grep -c ^Z || true") == "0"
	})
}

func TestCommandIsKilledWhenItsContextIsDone(t *testing.T) {
	m := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := m.Command(ctx, "sleep", "2000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := func() bool {
		return shell(t, m, "ps -A -o args= | grep -c '^sleep 2000' || true") == "1"
	}
	rulestest.Eventually(t, "the command runs", running)
	cancel()
	_ = cmd.Wait()
	rulestest.Eventually(t, "the command has ended", func() bool { return !running() })
}

func TestFailedMachineLeavesNothing(t *testing.T) {
	before := footprint(t)
	dir, spec := smallMachine(t)
	spec.Binds["/x"] = "/no/such/folder"
	if m, err := machine.Start(t.Context(), program, dir, spec); err == nil ||
		!strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("start with a missing directory: machine %v, error %v; want an error with its path", m, err)
	}
	mustBeRemoved(t, dir.Path())
	mustEqualFootprint(t, before)
}

func TestCloseTwice(t *testing.T) {
	before := footprint(t)
	dir, spec := smallMachine(t)
	m, err := machine.Start(t.Context(), program, dir, spec)
	if err != nil {
		t.Fatal(err)
	}
	inside := namespaces(t, m.PID())
	if len(cgroups(t, dir.Path())) == 0 {
		t.Error("the machine has no cgroup")
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if remaining := processesIn(t, inside); len(remaining) > 0 {
		t.Errorf("processes are left: %q", remaining)
	}
	mustBeRemoved(t, dir.Path())
	mustEqualFootprint(t, before)
}

func logOf(t *testing.T, m *machine.Machine, service string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(m.Dir(), machine.LogDir, service+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(content))
}

// mustBeRemoved fails the test if a machine's directory or one of its cgroups exists.
func mustBeRemoved(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of %s: error %v, want fs.ErrNotExist", dir, err)
	}
	if remaining := cgroups(t, dir); len(remaining) > 0 {
		t.Errorf("cgroups are left: %q", remaining)
	}
}

// cgroups returns the cgroups of the machine in dir.
func cgroups(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", filepath.Base(dir)))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
