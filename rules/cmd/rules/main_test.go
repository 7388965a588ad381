package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/diff"
)

var update = flag.Bool("update", false,
	"rewrite the expected output in the scripts of testdata, and schema.json")

func TestMain(m *testing.M) {
	diff.AgentRetryBudget.Time = time.Minute // the machine may be busy
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
	case "works":
		s.validate = func(s *system, v validation) error {
			return s.print(fmt.Sprintf("validated %s by port %d within %s\n", v.options.PodIPs,
				v.options.Port, v.options.Timeout), nil)
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
// [exec:NAME]. The condition [path:PATH] is true if the path exists.
func scriptCondition(condition string) (bool, error) {
	if path, ok := strings.CutPrefix(condition, "path:"); ok {
		_, err := os.Stat(path)
		return err == nil, nil
	}
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
			t.Errorf("[%s] with SLUICE_REQUIRE=%s: holds %v, error %v; want %v, an error: %v",
				tc.condition, tc.require, holds, err, tc.holds, tc.fails)
		}
	}
}

// Thousands of prefixes make garbage collection less frequent. A short command line does not.
func TestManyPrefixesRaiseTheGCPercent(t *testing.T) {
	for size, want := range map[int]int{100: 100, 100_000: 400} {
		before := debug.SetGCPercent(100)
		raiseGCPercent([]string{"apply", "-x", strings.Repeat("1", size)})
		if got := debug.SetGCPercent(before); got != want {
			t.Errorf("with %d bytes: GC percent %d, want %d", size, got, want)
		}
	}
}
