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

// programs are those that import the package, by their names.
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

// What is initialised before has the disadvantages of a second processor, and of a stack that
// grows.
func checkPlace(t *testing.T, order []string) {
	t.Helper()
	at := slices.Index(order, itself)
	if at < 0 || at > len(order)/2 {
		t.Errorf("it is number %d of %d:\n%s", at+1, len(order), order)
	}
	for _, later := range []string{"os", "net", "go.yaml.in/yaml/v2"} {
		if i := slices.Index(order, later); i < at {
			t.Errorf("%s is number %d, and this one %d", later, i+1, at+1)
		}
	}
}

// Each package that initialises anything costs a page of the program's code, 3 microseconds or
// more, whatever it is that it makes; and most of it would be for commands other than the one that
// runs. What is made of constants is in the file as it is.
func checkOthers(t *testing.T, order []string) {
	t.Helper()
	for _, name := range order {
		if name != itself && (strings.HasPrefix(name, "github.com/sluice-mesh/") ||
			name == "main") {
			t.Errorf("%s does something before main: it has a variable that is a map, or that a function makes", name)
		}
	}
}

// A program is built once for both tests.
func TestOrderOfInitialisation(t *testing.T) {
	for program := range programs {
		order := initialised(t, program)
		t.Run(program+"/most packages are initialised after it", func(t *testing.T) {
			checkPlace(t, order)
		})
		t.Run(program+"/no other package of ours is initialised", func(t *testing.T) {
			checkOthers(t, order)
		})
	}
}

const itself = "github.com/sluice-mesh/sluice/plugin/faststart"

// initialised are the packages that a program initialises, in their order.
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
