package suite_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/readme"
)

// The README, and the title of its section with the commands.
const (
	readmePath     = "../../README.md"
	installSection = "Install on a cluster"
)

// A step is the beginning of a command in the README, and a check to run after it.
type step struct {
	command string
	check   func(r *releaseTest, t *testing.T)
}

// steps are the commands of the README in order. The first release is the previous release, and the
// second one is this version.
var steps = []step{
	{"make release ", (*releaseTest).checkOutThisVersion},
	{"helm install sluice ", (*releaseTest).checkInstallation},
	{"helm uninstall istio-cni ", (*releaseTest).checkMigrated},
	{"helm test sluice ", (*releaseTest).checkHelmTestOutput},
	{"make release ", nil},
	{"helm upgrade sluice ", (*releaseTest).checkUpgrade},
	{"helm rollback sluice ", (*releaseTest).checkRollback},
	{"helm uninstall sluice ", (*releaseTest).checkUninstalled},
}

// TestRelease runs the README's commands to install, migrate from istio-cni, upgrade from the
// previous release, roll back and uninstall. In the commands it replaces only the registry and the
// values file. Initially the cluster has istio-cni and mesh pods. Its nodes pull from the registry.
// Pods are started continuously; each must start at the first attempt and be captured.
func TestRelease(t *testing.T) {
	commands := commandsOfSteps(t)
	r := newReleaseTest(t, startTestCluster(t))
	r.tc.saveOnFailure(t)
	r.begin(t)
	for i, s := range steps {
		ok := t.Run(strings.TrimSpace(s.command), func(t *testing.T) {
			r.tc.saveOnFailure(t)
			r.run(t, commands[i])
			if s.check != nil {
				s.check(r, t)
			}
		})
		if !ok {
			return
		}
	}
}

// commandsOfSteps returns the commands in the README, and fails the test unless they match the
// steps.
func commandsOfSteps(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	commands := readme.Commands(string(text), installSection)
	if len(commands) != len(steps) {
		t.Fatalf("%s has %d commands in %q, want %d:\n%s", readmePath, len(commands),
			installSection, len(steps), strings.Join(commands, "\n"))
	}
	for i, s := range steps {
		if !strings.HasPrefix(commands[i], s.command) {
			t.Fatalf("command %d of %s is %q, want prefix %q", i+1, readmePath,
				commands[i], s.command)
		}
	}
	return commands
}

func (r *releaseTest) checkInstallation(t *testing.T) {
	r.firstImage = r.mustRunRelease(t)
	r.startPodDuringChurn(t)
}

func (r *releaseTest) checkMigrated(t *testing.T) {
	r.tc.waitUntilAloneInChain(t)
	r.startPodDuringChurn(t)
}

// checkHelmTestOutput reads the output, because helm test also succeeds if the chart renders no
// test.
func (r *releaseTest) checkHelmTestOutput(t *testing.T) {
	if !strings.Contains(r.output, "Succeeded") {
		t.Errorf("helm test reports no successful test: %s", r.output)
	}
}

func (r *releaseTest) checkUpgrade(t *testing.T) {
	if image := r.mustRunRelease(t); image == r.firstImage {
		t.Errorf("the upgrade did not change the image %s", image)
	}
	r.startPodDuringChurn(t)
}

func (r *releaseTest) checkRollback(t *testing.T) {
	if image := r.mustRunRelease(t); image != r.firstImage {
		t.Errorf("image after the rollback: %s, want %s", image, r.firstImage)
	}
	r.startPodDuringChurn(t)
	r.churn.end(t)
	number, _ := r.churn.count()
	t.Logf("%d pods have started and ended", number)
}

func (r *releaseTest) checkUninstalled(t *testing.T) {
	r.tc.mustBeAsBefore(t)
	for i := 1; i < len(r.pods); i++ {
		r.tc.mustCapture(t, r.pods[i-1], r.pods[i])
	}
	r.mustHaveNoFailedSandbox(t)
}
