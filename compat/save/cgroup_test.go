package save_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// The test only parses the rules, because the kernel rejects rules with a cgroup that does not
// exist.
func TestParseCgroup(t *testing.T) {
	for option, want := range map[string]string{
		"--path /system.slice/kubelet.service": `socket cgroupv2 level 2 "system.slice/kubelet.service" accept`,
		"--path kubepods":                      `socket cgroupv2 level 1 "kubepods" accept`,
		"! --path kubepods":                    "unknown(-m cgroup ! --path kubepods) accept",
		"--path /":                             "unknown(-m cgroup --path /) accept",
		"--cgroup 5":                           "unknown(-m cgroup --cgroup 5) accept",
	} {
		text := "*mangle\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m cgroup " + option + " -j ACCEPT\nCOMMIT\n"
		tables, err := save.Parse(rules.IPv4, "f", strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", option, err)
			continue
		}
		r := tables[0].Chain("OUTPUT").Rules[0]
		r.Actions = r.Actions[len(r.Actions)-1:]
		if got := r.String(); got != want {
			t.Errorf("%s: %s, want %s", option, got, want)
		}
	}
}
