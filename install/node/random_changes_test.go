package node_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/install/node"
)

// A history simulates a configuration directory, to which foreign changes and Sluice's changes are
// applied. It also records the foreign files that uninstallation must restore.
type history struct {
	t        *rapid.T
	settings node.Settings
	found    node.Actual
	foreign  map[string]string // the foreign files, as they are to be restored
	// plainOf contains, by the name of a list, the name of the foreign plain configuration that
	// Sluice has replaced with the list.
	plainOf map[string]string
}

func newHistory(t *rapid.T) *history {
	return &history{
		t: t, foreign: map[string]string{}, plainOf: map[string]string{},
		found: node.Actual{
			Files: map[string]node.File{}, Entries: map[string]journal.Entry{},
			Executables: map[string]bool{},
		},
		settings: node.Settings{
			CNIBinDir: "/bin", CNIConfDir: "/conf", StateDir: "/state", Chained: true,
			NodeCNIConfDir: "/etc/cni/net.d", Type: "sluice-cni", Element: json.RawMessage(elementV1),
			Binaries: map[string]string{"sluice-cni": "x"},
		}.WithDefaults(),
	}
}

// write writes a foreign file, or removes it if data is nil.
func (h *history) write(name string, data []byte) {
	if plain, ok := h.plainOf[name]; ok {
		delete(h.plainOf, name)
		if _, exists := h.found.Files[plain]; !exists {
			delete(h.foreign, plain) // the foreign program has replaced the list or removed the network
		}
	}
	delete(h.foreign, name)
	delete(h.found.Files, name)
	if data != nil {
		h.found.Files[name] = node.File{Data: data, Mode: 0o644}
		h.foreign[name] = withoutSluice(string(data))
		return
	}
	for list, plain := range h.plainOf {
		// A foreign program has written the plain file again, and removed it before a
		// reconciliation: the list still replaces the file.
		if plain == name {
			h.foreign[name] = string(h.found.Entries[list].Original)
		}
	}
}

// withoutSluice returns a list without Sluice's element.
func withoutSluice(data string) string {
	if l, err := chain.Parse([]byte(data)); err == nil {
		return string(l.Remove("sluice-cni"))
	}
	return data
}

// apply applies targets as the node does, with the same checks. Each target has two steps. After
// the given number of steps, apply stops as if the process were killed.
func (h *history) apply(targets []node.Target, steps int) {
	for _, t := range targets {
		if now, ok := h.found.Files[t.Name]; ok != (t.Current != nil) ||
			string(now.Data) != string(t.Current) {
			h.t.Fatalf("%s has the content %q, but the target expects %q", t.Name, now.Data, t.Current)
		}
		if steps--; steps < 0 {
			return
		}
		if t.Entry != nil {
			h.found.Entries[t.Name] = *t.Entry
		}
		if steps--; steps < 0 {
			return
		}
		if e := h.found.Entries[t.Name]; t.Content != nil && e.Kind == journal.Converted &&
			e.WrittenByAgent(t.Content) {
			h.plainOf[t.Name] = e.From
		}
		if t.Content == nil {
			delete(h.found.Files, t.Name)
			delete(h.plainOf, t.Name)
		} else {
			h.found.Files[t.Name] = node.File{Data: t.Content, Mode: t.Mode}
		}
		if t.Forget {
			delete(h.found.Entries, t.Name)
		}
	}
}

// allSteps exceeds the number of steps of all targets.
const allSteps = 1 << 20

// reconcile applies the desired state until it is reached.
func (h *history) reconcile() {
	for range 4 {
		pending := node.PendingTargets(node.Desired(h.settings, h.found, node.Relaxed{}))
		if len(pending) == 0 {
			h.checkChain()
			return
		}
		h.apply(pending, allSteps)
	}
	h.t.Fatalf("four reconciliations do not suffice; chains %v", h.chains())
}

// checkChain fails the test in chained mode unless the configuration that runtimes use has the
// plugin exactly once, and last.
func (h *history) checkChain() {
	var files []chain.File
	for name, f := range h.found.Files {
		files = append(files, chain.File{Name: name, Data: f.Data})
	}
	if !h.settings.Chained {
		return
	}
	choice, _, err := chain.Discover(files, "")
	if err != nil {
		return // there is no valid configuration, which the node reports
	}
	if choice.SinglePlugin || choice.List.Inspect("sluice-cni", h.settings.Element) != chain.None {
		h.t.Fatalf("%s is used without the expected plugin; chains %v", choice.Name, h.chains())
	}
}

func (h *history) chains() map[string]string {
	got := map[string]string{}
	for name, f := range h.found.Files {
		if l, err := chain.Parse(f.Data); err == nil {
			got[name] = strings.Join(l.Types(), " ")
		} else {
			got[name] = "plain " + chain.TypeOf(f.Data)
		}
	}
	return got
}

// TestAnyForeignChangesAreCorrectedAndKept checks that, after any foreign changes between
// reconciliations, the configuration that runtimes use has the plugin in chained mode, and that
// uninstallation restores the foreign files in any mode.
func TestAnyForeignChangesAreCorrectedAndKept(t *testing.T) {
	rounds := 3
	if os.Getenv("SLUICE_LONG") == "1" {
		rounds = 100
	}
	for range rounds {
		rapid.Check(t, checkHistory)
	}
}

func checkHistory(t *rapid.T) {
	h := newHistory(t)
	names := rapid.SampledFrom([]string{
		"01-a.conflist", "05-b.conf", "05-b.conflist", "10-c.conflist", "20-d.json", "30-e.conf",
	})
	for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
		switch rapid.IntRange(0, 11).Draw(t, "step") {
		case 0, 1, 2: // a foreign file is written
			name := names.Draw(t, "name")
			if filepath.Ext(name) == ".conflist" {
				h.write(name, []byte(list("bridge", fmt.Sprint("step-", step))))
			} else {
				h.write(name,
					fmt.Appendf(nil,
						"{\"cniVersion\": \"1.0.0\", \"name\": \"n%d\", \"type\": \"bridge\"}\n",
						step))
			}
		case 3: // an existing list is edited, possibly with Sluice's element
			h.edit(t, step)
		case 4: // a file is removed
			if name, ok := h.anyFile(t); ok {
				h.write(name, nil)
			}
		case 5: // a file is renamed
			if name, ok := h.anyFile(t); ok && filepath.Ext(name) == ".conflist" {
				data := h.found.Files[name].Data
				h.write(name, nil)
				h.write("15-renamed.conflist", data)
			}
		case 6: // the copy of the primary configuration is enabled or disabled
			h.settings.IstioOwnedCNIConfig = !h.settings.IstioOwnedCNIConfig
			h.settings.IstioOwnedCNIConfigFileName = "00-sluice.conflist"
		case 7: // the mode changes between chained and stand-alone
			h.settings.Chained = !h.settings.Chained
			h.settings.CNIConfFileName = map[bool]string{
				false: node.DefaultStandaloneFileName,
			}[h.settings.Chained]
		case 8: // a reconciliation that is killed
			h.apply(node.PendingTargets(node.Desired(h.settings, h.found, node.Relaxed{})),
				rapid.IntRange(0, 6).Draw(t, "after"))
		default:
			h.reconcile()
		}
	}
	if rapid.Bool().Draw(t, "killed") {
		h.apply(node.PendingTargets(node.Released(h.settings, h.found)),
			rapid.IntRange(0, 6).Draw(t, "after"))
	}
	h.apply(node.PendingTargets(node.Released(h.settings, h.found)), allSteps)
	remaining := map[string]string{}
	for name, f := range h.found.Files {
		remaining[name] = string(f.Data)
	}
	if diff := cmp.Diff(h.foreign, remaining); diff != "" || len(h.found.Entries) != 0 {
		t.Fatalf("after uninstallation: %d journal entries; files (-want +got):\n%s",
			len(h.found.Entries), diff)
	}
}

// anyFile returns one of the foreign files, or of the lists that replace them.
func (h *history) anyFile(t *rapid.T) (string, bool) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(h.found.Files)), func(name string) bool {
		return isSluiceFile(name)
	})
	if len(names) == 0 {
		return "", false
	}
	return rapid.SampledFrom(names).Draw(t, "file"), true
}

func isSluiceFile(name string) bool {
	return name == "00-sluice.conflist" || name == node.DefaultStandaloneFileName
}

// edit adds an element to a list, which may contain Sluice's element.
func (h *history) edit(t *rapid.T, step int) {
	name, ok := h.anyFile(t)
	if !ok {
		return
	}
	l, err := chain.Parse(h.found.Files[name].Data)
	if err != nil {
		return
	}
	data, err := l.Insert(fmt.Appendf(nil, `{"type": "edit-%d"}`, step))
	if err != nil {
		t.Fatal(err)
	}
	h.write(name, data)
}
