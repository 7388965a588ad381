package brief_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	_ "github.com/sluice-mesh/sluice/plugin/brief"
)

func TestOneProcessor(t *testing.T) {
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors", n)
	}
}

// What is initialised before has the disadvantages of a second processor, and of a stack that grows.
func TestMostPackagesAreInitialisedAfterIt(t *testing.T) {
	for program, folder := range map[string]string{"sluice-cni": "../cmd/sluice-cni", "rules": "../../rules/cmd/rules"} {
		t.Run(program, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), program)
			build := exec.Command("go", "build", "-o", path, folder)
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
			at := slices.Index(order, "github.com/sluice-mesh/sluice/plugin/brief")
			if at < 0 || at > len(order)/2 {
				t.Errorf("it is number %d of %d:\n%s", at+1, len(order), out)
			}
			for _, later := range []string{"os", "net", "go.yaml.in/yaml/v2", "github.com/sluice-mesh/sluice/rules"} {
				if i := slices.Index(order, later); i < at {
					t.Errorf("%s is number %d, and this one %d", later, i+1, at+1)
				}
			}
		})
	}
}
