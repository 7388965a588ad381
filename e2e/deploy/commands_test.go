package deploy_test

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	helm "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/sluice-mesh/sluice/e2e/deploy"
)

// commandsOf returns the commands in the code blocks of a section.
func commandsOf(t *testing.T, path, section string) [][]string {
	t.Helper()
	_, text, _ := strings.Cut(readme(t, path), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var commands [][]string
	for i, part := range strings.Split(text, "```") {
		if i%2 == 0 {
			continue // between blocks
		}
		for line := range strings.Lines(strings.ReplaceAll(part, "\\\n", " ")) {
			if words := strings.Fields(line); len(words) > 0 {
				commands = append(commands, words)
			}
		}
	}
	return commands
}

// TestCommandsOfTheFrontPage: Make has the targets, Helm accepts the commands, and the chart with
// their values names the image that was pushed before.
func TestCommandsOfTheFrontPage(t *testing.T) {
	var verbs []string
	pushed := map[string]string{}
	values := map[string]any{}
	for _, words := range commandsOf(t, "../../README.md", "Install on a cluster") {
		command := strings.Join(words, " ")
		switch words[0] {
		case "make":
			if out, err := exec.Command("make", append([]string{"-n", "-C", "../.."}, words[1:]...)...).
				CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", command, err, out)
			}
			for _, w := range words[2:] {
				name, value, _ := strings.Cut(w, "=")
				pushed[name] = value
			}
		case "helm":
			verbs = append(verbs, words[1])
			if !acceptsCommand(t, words[1:], values) {
				continue
			}
			o := deploy.Options{}
			if words[1] == "upgrade" {
				o.Upgraded = "sluice"
			}
			r, err := deploy.Render(values, o)
			if err != nil {
				t.Errorf("%s: %v", command, err)
				continue
			}
			image := decodeAll(t, r.Objects).agent(t).Spec.Template.Spec.Containers[0].Image
			if want := pushed["HUB"] + "/sluice:" + pushed["TAG"]; image != want {
				t.Errorf("%s: the image is %s, and %s was pushed", command, image, want)
			}
		default:
			t.Errorf("%s: want a command of make or helm", command)
		}
	}
	if got := strings.Join(verbs, " "); got != "install uninstall test upgrade rollback uninstall" {
		t.Errorf("the commands of Helm are %s", got)
	}
}

// acceptsCommand reports whether a command has values, which it adds. The test fails if Helm refuses
// its flags or arguments.
func acceptsCommand(t *testing.T, words []string, values map[string]any) bool {
	t.Helper()
	root, err := helm.NewRootCmd(io.Discard, words, func(bool) {})
	if err != nil {
		t.Fatal(err)
	}
	sub, rest, err := root.Find(words)
	if err == nil {
		err = sub.ParseFlags(rest)
	}
	if err == nil {
		err = sub.ValidateArgs(sub.Flags().Args())
	}
	if err != nil {
		t.Errorf("helm %s: %v", strings.Join(words, " "), err)
		return false
	}
	sets, err := sub.Flags().GetStringArray("set")
	if err != nil {
		return false
	}
	for _, set := range sets {
		if err := strvals.ParseInto(set, values); err != nil {
			t.Errorf("--set %s: %v", set, err)
		}
	}
	return true
}
