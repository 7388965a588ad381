package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/servetest"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

var update = flag.Bool("update", false,
	"rewrite the expected output in the scripts of testdata, and schema.json")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rules": func() {
		os.Exit(runRecorded(scriptSystem(), os.Args[1:]))
	}})
}

// scriptSystem returns the real system, changed by the variables RESOLV_CONF, NO_NF_TABLES and
// VALIDATION.
func scriptSystem() *system {
	s := thisSystem()
	if path := os.Getenv("RESOLV_CONF"); path != "" {
		s.resolvConf = path
	}
	if os.Getenv("NO_NF_TABLES") != "" {
		withoutNetfilter()
	}
	switch os.Getenv("VALIDATION") {
	case "none":
		s.validate = nil
	case "works":
		s.validate = func(s *system, v validation) error {
			return s.print(fmt.Sprintf("validated %s by port %d within %s\n", v.podIPs, v.port,
				v.timeout), nil)
		}
	case "fails":
		s.validate = func(*system, validation) error {
			return failure{exitInvalid, fmt.Errorf("inbound: not captured")}
		}
	}
	return s
}

// TestScript runs the scripts that need no privilege.
func TestScript(t *testing.T) { runScripts(t, "testdata/script") }

// TestNamespaceScript runs the scripts that program real namespaces.
func TestNamespaceScript(t *testing.T) {
	netnstest.RequireRoot(t)
	runScripts(t, "testdata/namespace")
}

// runScripts runs the scripts of a directory.
func runScripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir:                dir,
		UpdateScripts:      *update,
		RequireUniqueNames: true,
		Cmds:               scriptCommands,
		Condition:          scriptCondition,
		Setup: func(env *testscript.Env) error {
			// By default a command with -race takes a second to exit.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			// Scripts find the same programs as netnstest.
			env.Setenv("PATH", env.Getenv("PATH")+":"+netnstest.SystemPath)
			// iptables-legacy uses this lock file.
			env.Setenv("XTABLES_LOCKFILE", filepath.Join(env.WorkDir, "lock"))
			return nil
		},
	})
}

// scriptCondition implements the condition [program:NAME], which is true if the program is
// installed. If no test may be skipped, a missing program is an error, unlike with testscript's own
// [exec:NAME].
func scriptCondition(condition string) (bool, error) {
	name, ok := strings.CutPrefix(condition, "program:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", condition)
	}
	_, err := netnstest.LookBinary(name)
	if netnstest.MustNotSkip() {
		return err == nil, err
	}
	return err == nil, nil
}

func TestMissingProgramIsAnErrorIfNoTestMayBeSkipped(t *testing.T) {
	for _, tc := range []struct {
		condition, require string
		holds, fails       bool
	}{
		{"program:cat", "1", true, false},
		{"program:no-such-program", "", false, false},
		{"program:no-such-program", "1", false, true},
		{"no-such-condition", "", false, true},
	} {
		t.Setenv("CI", "")
		t.Setenv("SLUICE_REQUIRE", tc.require)
		holds, err := scriptCondition(tc.condition)
		if holds != tc.holds || (err != nil) != tc.fails {
			t.Errorf("[%s] with SLUICE_REQUIRE=%s: %v, error %v; want %v, an error: %v",
				tc.condition, tc.require, holds, err, tc.holds, tc.fails)
		}
	}
}

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"status":    scriptStatus,
	"namespace": scriptNamespace,
	"netns":     scriptNetns,
	"within":    scriptWithin,
	"untouched": scriptUntouched,
	"device":    scriptDevice,
	"proxy":     scriptProxy,
	"agent":     scriptAgent,
}

// scriptStatus runs a command and requires an exit code: status CODE COMMAND ARGUMENT...
func scriptStatus(ts *testscript.TestScript, _ bool, args []string) {
	wantStatus(ts, args[0], ts.Exec(args[1], args[2:]...))
}

// wantStatus requires an exit code of a command that returned err.
func wantStatus(ts *testscript.TestScript, want string, err error) {
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != want {
		ts.Fatalf("exit status %s, want %s", got, want)
	}
}

// scriptAgent starts a node agent that returns a status: agent RUNDIR FILE.
func scriptAgent(ts *testscript.TestScript, _ bool, args []string) {
	status := json.RawMessage(ts.ReadFile(args[1]))
	server := serve.New(servetest.Fill(serve.Options{
		Socket: agent.SocketIn(ts.MkAbs(args[0])),
		Status: func() any {
			return status
		},
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	ts.Defer(func() {
		cancel()
		<-done
	})
	for !server.Listening() {
		time.Sleep(time.Millisecond)
	}
}

// scriptNamespace creates a network namespace with the addresses on lo: namespace NAME
// ADDRESS/LENGTH... The file NAME is a symbolic link to the namespace.
func scriptNamespace(ts *testscript.TestScript, _ bool, args []string) {
	ns, err := netns.New()
	ts.Check(err)
	ts.Defer(func() { _ = ns.Close() })
	ts.Check(ns.Do(func() error { return addAddresses(args[1:]) }))
	ts.Check(os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), ts.MkAbs(args[0])))
}

// scriptNetns creates a namespace in the directory of ip-netns(8): netns NAME.
func scriptNetns(ts *testscript.TestScript, _ bool, args []string) {
	ns, err := netns.New()
	ts.Check(err)
	ts.Defer(func() { _ = ns.Close() })
	ts.Check(os.MkdirAll(namedNamespaces, 0o755))
	path := filepath.Join(namedNamespaces, args[0])
	ts.Check(os.WriteFile(path, nil, 0o444))
	ts.Defer(func() { _ = os.Remove(path) })
	ts.Check(unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.FD()), path, "", unix.MS_BIND, ""))
	ts.Defer(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

// addAddresses adds the addresses to lo in the namespace of the thread.
func addAddresses(prefixes []string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, text := range prefixes {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, a); err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
	}
	return nil
}

// openNamespace opens a namespace that the script created.
func openNamespace(ts *testscript.TestScript, name string) *netns.NS {
	ns, err := netns.Open(ts.MkAbs(name))
	ts.Check(err)
	return ns
}

// scriptWithin runs a command in a namespace: within NAME COMMAND ARGUMENT...
func scriptWithin(ts *testscript.TestScript, neg bool, args []string) {
	ns := openNamespace(ts, args[0])
	defer ns.Close()
	err := ns.Do(func() error { return ts.Exec(args[1], args[2:]...) })
	if (err != nil) != neg {
		ts.Fatalf("within %s: error %v, want an error: %v", args, err, neg)
	}
}

// scriptUntouched requires that the namespace has no nftables table, no rules of Sluice in
// iptables-legacy, and no route of Sluice: untouched NAME
func scriptUntouched(ts *testscript.TestScript, neg bool, args []string) {
	ns := openNamespace(ts, args[0])
	defer ns.Close()
	all, err := nft.ReadAll(ns)
	ts.Check(err)
	routing, err := route.Read(ns)
	ts.Check(err)
	installed, err := compat.InstalledBackends(ns)
	ts.Check(err)
	if untouched := len(all.Tables)+len(installed) == 0 && routing.IsZero(); untouched == neg {
		ts.Fatalf("untouched: %v, want %v; tables:\n%s", untouched, neg, all)
	}
}

// Thousands of prefixes make garbage collection less frequent. A short command line does not.
func TestManyPrefixesRaiseTheGCPercent(t *testing.T) {
	for size, want := range map[int]int{100: 100, 100_000: 400} {
		before := debug.SetGCPercent(100)
		raiseGCPercent([]string{"apply", "-x", strings.Repeat("1", size)})
		if got := debug.SetGCPercent(before); got != want {
			t.Errorf("with %d bytes: %d%%, want %d%%", size, got, want)
		}
	}
}
