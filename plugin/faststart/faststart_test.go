package faststart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	_ "github.com/sluice-mesh/sluice/plugin/faststart"
)

func TestOneProcessor(t *testing.T) {
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors", n)
	}
}

// programs contains the programs that import the package.
var programs = map[string]string{
	"sluice-cni": "../cmd/sluice-cni", "rules": "../../rules/cmd/rules",
}

func TestProcessorLimitIsNotFollowed(t *testing.T) {
	for program, folder := range programs {
		out, err := exec.Command("go", "list", "-f", "{{.DefaultGODEBUG}}", folder).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "updatemaxprocs=0") {
			t.Errorf("%s: %v, %s", program, err, out)
		}
	}
}

// checkPlace checks that the package is initialized early. Packages that are initialized before it
// run with a second processor and a growing stack.
func checkPlace(t *testing.T, order []string) {
	t.Helper()
	at := slices.Index(order, itself)
	if at < 0 || at > len(order)/2 {
		t.Errorf("the package is number %d of %d:\n%s", at+1, len(order), order)
	}
	for _, later := range []string{"os", "net", "go.yaml.in/yaml/v2"} {
		if i := slices.Index(order, later); i < at {
			t.Errorf("%s is number %d, and this package is number %d", later, i+1, at+1)
		}
	}
}

// checkOthers checks that no other package of Sluice is initialized. Each initialization costs a
// page of the program's code and at least 3 microseconds, mostly for other commands than the one
// that runs. Constants are stored in the executable.
func checkOthers(t *testing.T, order []string) {
	t.Helper()
	for _, name := range order {
		if name != itself && (strings.HasPrefix(name, "github.com/sluice-mesh/") ||
			name == "main") {
			t.Errorf("%s is initialized before main: it has a variable that is a map, or that a function call sets", name)
		}
	}
}

// TestOrderOfInitialisation builds each program once for both subtests.
func TestOrderOfInitialisation(t *testing.T) {
	for program := range programs {
		order := initialised(t, program)
		t.Run(program+"/most packages are initialised after it", func(t *testing.T) {
			checkPlace(t, order)
		})
		t.Run(program+"/no other package of Sluice is initialised", func(t *testing.T) {
			checkOthers(t, order)
		})
	}
}

const itself = "github.com/sluice-mesh/sluice/plugin/faststart"

// initialised returns the packages that a program initializes, in order.
func initialised(t *testing.T, program string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), program)
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, programs[program])
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.Command(path, "version")
	run.Env = append(os.Environ(), "GODEBUG=inittrace=1", "CNI_COMMAND=VERSION")
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var order []string
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "init" {
			order = append(order, words[1])
		}
	}
	return order
}
