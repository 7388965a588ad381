package faststart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/sluice-mesh/sluice/plugin/faststart"
)

func TestProgramUsesOneProcessor(t *testing.T) {
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("GOMAXPROCS is %d, want 1", n)
	}
}

// programs contains the directories of the programs that import the package, by name.
var programs = map[string]string{
	"sluice-cni": "../cmd/sluice-cni", "rules": "../../rules/cmd/rules",
}

func TestGOMAXPROCSIsNotUpdatedAtRuntime(t *testing.T) {
	for program, dir := range programs {
		out, err := exec.Command("go", "list", "-f", "{{.DefaultGODEBUG}}", dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "updatemaxprocs=0") {
			t.Errorf("%s: error %v, settings %s; want updatemaxprocs=0", program, err, out)
		}
	}
}

// checkPlace checks that this package is initialized early, because it does not shorten the
// initialization of the packages before it.
func checkPlace(t *testing.T, order []initialization) {
	t.Helper()
	index := func(name string) int {
		return slices.IndexFunc(order, func(i initialization) bool { return i.name == name })
	}
	at := index(thisPackage)
	if at < 0 || at > len(order)/2 {
		t.Errorf("the package is number %d of %d, want it in the first half:\n%v", at+1, len(order),
			order)
	}
	for _, later := range []string{"os", "net", "go.yaml.in/yaml/v2"} {
		if i := index(later); i < at {
			t.Errorf("%s is number %d, want it after this package, which is number %d", later, i+1,
				at+1)
		}
	}
}

// maxAllocated is the maximum number of bytes that the initialization of a package of Sluice
// allocates. Small tables and errors are below it, and take less than 1 % of the time of a command.
const maxAllocated = 1024

// checkOthers checks that no other package of Sluice allocates much when it is initialized, because
// every command waits for the initialization. Large tables belong in a constant, or in a function
// that builds them at the first call.
func checkOthers(t *testing.T, order []initialization) {
	t.Helper()
	for _, i := range order {
		if i.allocated > maxAllocated &&
			(strings.HasPrefix(i.name, "github.com/sluice-mesh/") || i.name == "main") {
			t.Errorf("the initialization of %s allocates %d bytes, more than %d", i.name, i.allocated,
				maxAllocated)
		}
	}
}

// TestOrderOfInitialization builds each program once for both subtests.
func TestOrderOfInitialization(t *testing.T) {
	for program := range programs {
		order := initialized(t, program)
		t.Run(program+"/most packages are initialized after this one", func(t *testing.T) {
			checkPlace(t, order)
		})
		t.Run(program+"/the initialization of other packages of Sluice is small", func(t *testing.T) {
			checkOthers(t, order)
		})
	}
}

const thisPackage = "github.com/sluice-mesh/sluice/plugin/faststart"

// An initialization is the initialization of one package, before main.
type initialization struct {
	name      string
	allocated int // bytes
}

// initialized returns the packages that a program initializes, in the order of initialization.
func initialized(t *testing.T, program string) []initialization {
	t.Helper()
	path := filepath.Join(t.TempDir(), program)
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, programs[program])
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, out)
	}
	run := exec.Command(path, "version")
	run.Env = append(os.Environ(), "GODEBUG=inittrace=1", "CNI_COMMAND=VERSION")
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("run %s: %v\n%s", program, err, out)
	}
	var order []initialization
	line := regexp.MustCompile(`(?m)^init (\S+) .* (\d+) bytes, \d+ allocs$`)
	for _, match := range line.FindAllStringSubmatch(string(out), -1) {
		allocated, err := strconv.Atoi(match[2])
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, initialization{match[1], allocated})
	}
	return order
}
