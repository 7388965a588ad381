package suite_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/readme"
)

// The front page, and its section with the commands of a user.
const (
	frontPage      = "../../README.md"
	installSection = "Install on a cluster"
)

// A step is a command of the front page, by its first words, and what holds after it.
type step struct {
	command string
	check   func(u *user, t *testing.T)
}

// The first release is the one before this, and the second is this.
var steps = []step{
	{"make release ", (*user).takeThisVersion},
	{"helm install sluice ", (*user).mustHaveInstalled},
	{"helm uninstall istio-cni ", (*user).mustHaveMigrated},
	{"helm test sluice ", (*user).mustHaveTested},
	{"make release ", nil},
	{"helm upgrade sluice ", (*user).mustHaveUpgraded},
	{"helm rollback sluice ", (*user).mustHaveRolledBack},
	{"helm uninstall sluice ", (*user).mustHaveUninstalled},
}

// TestRelease runs the commands that the front page shows to install, migrate from istio-cni,
// upgrade, roll back and uninstall, exactly as they are there but for the registry and the values
// file. The upgrade is from the release before this one. The cluster has the real istio-cni and pods of its mesh when they begin, and its nodes pull
// from the registry. Pods start all the time, and each must start at once and captured.
func TestRelease(t *testing.T) {
	commands := commandsOfSteps(t)
	u := newUser(t, startWorld(t))
	u.w.saveOnFailure(t)
	u.begin(t)
	for i, s := range steps {
		ok := t.Run(strings.TrimSpace(s.command), func(t *testing.T) {
			u.w.saveOnFailure(t)
			u.run(t, commands[i])
			if s.check != nil {
				s.check(u, t)
			}
		})
		if !ok {
			return
		}
	}
}

// commandsOfSteps reads the commands of the front page, which must be the commands of the steps.
func commandsOfSteps(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(frontPage)
	if err != nil {
		t.Fatal(err)
	}
	commands := readme.Commands(string(text), installSection)
	if len(commands) != len(steps) {
		t.Fatalf("%s has %d commands in %q, want %d:\n%s", frontPage, len(commands),
			installSection, len(steps), strings.Join(commands, "\n"))
	}
	for i, s := range steps {
		if !strings.HasPrefix(commands[i], s.command) {
			t.Fatalf("command %d of %s is %q, want one that begins with %q", i+1, frontPage,
				commands[i], s.command)
		}
	}
	return commands
}

func (u *user) mustHaveInstalled(t *testing.T) {
	u.first = u.mustRunRelease(t)
	u.startPods(t)
}

func (u *user) mustHaveMigrated(t *testing.T) {
	u.w.whenAloneInChain(t)
	u.startPods(t)
}

// Helm succeeds also if a chart has no test for its values.
func (u *user) mustHaveTested(t *testing.T) {
	if !strings.Contains(u.output, "Succeeded") {
		t.Errorf("no test has succeeded: %s", u.output)
	}
}

func (u *user) mustHaveUpgraded(t *testing.T) {
	if image := u.mustRunRelease(t); image == u.first {
		t.Errorf("the image is still %s", image)
	}
	u.startPods(t)
}

func (u *user) mustHaveRolledBack(t *testing.T) {
	if image := u.mustRunRelease(t); image != u.first {
		t.Errorf("the image is %s, want %s", image, u.first)
	}
	u.startPods(t)
	u.churn.end(t)
	number, _ := u.churn.count()
	t.Logf("%d pods have started and ended", number)
}

func (u *user) mustHaveUninstalled(t *testing.T) {
	u.w.mustBeAsBefore(t)
	for i := 1; i < len(u.pods); i++ {
		u.w.mustCapture(t, u.pods[i-1], u.pods[i])
	}
	u.mustHaveNoFailedSandbox(t)
}
