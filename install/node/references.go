package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
)

// A Use is how many sandboxes need a plugin to be removed.
type Use struct {
	Sandboxes int
	// Own are those among them that are of the agent's own pods.
	Own int
}

// References counts, by type of plugin, the sandboxes whose cached result names the plugin. A
// runtime that works from this cache (CRI-O does) runs the executables for DEL even if the
// configuration has changed since. Own tells which pods are the agent's. A sandbox of which it
// cannot be said whose it is, is not. Directories that do not exist hold nothing; files that are no
// cached results are passed over.
func References(dirs []string, own func(namespace, pod string) bool) (map[string]Use, error) {
	counts := map[string]Use{}
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range entries {
			result, err := readResult(filepath.Join(dir, e.Name()), e)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			ours := own(result.pod())
			for plugin := range result.types() {
				use := counts[plugin]
				use.Sandboxes++
				if ours {
					use.Own++
				}
				counts[plugin] = use
			}
		}
	}
	return counts, errors.Join(errs...)
}

// cachedResult is what counts of a result as libcni caches it; the zero value is that of a file
// that is none.
type cachedResult struct {
	Kind   string `json:"kind"`
	Config []byte `json:"config"`
	// Args has pairs of strings. They are read apart: in a form that is not understood, they must
	// not hide a sandbox.
	Args json.RawMessage `json:"cniArgs"`
}

func readResult(path string, e fs.DirEntry) (cachedResult, error) {
	if !e.Type().IsRegular() {
		return cachedResult{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return cachedResult{}, err
	}
	var r cachedResult
	if json.Unmarshal(data, &r) != nil || r.Kind != "cniCacheV1" {
		return cachedResult{}, nil
	}
	return r, nil
}

// types returns the types of the plugins in the chain.
func (r cachedResult) types() map[string]bool {
	types := map[string]bool{}
	if list, err := chain.Parse(r.Config); err == nil {
		for _, plugin := range list.Types() {
			types[plugin] = true
		}
	} else if plugin := chain.PlainType(r.Config); plugin != "" {
		types[plugin] = true
	}
	return types
}

// pod returns whose sandbox it is; nobody's if that is not clear, as it is not when an argument is
// given twice.
func (r cachedResult) pod() (namespace, name string) {
	var args [][2]string
	if json.Unmarshal(r.Args, &args) != nil {
		return "", ""
	}
	values := map[string]string{}
	for _, a := range args {
		if old, twice := values[a[0]]; twice && old != a[1] {
			return "", ""
		}
		values[a[0]] = a[1]
	}
	return values["K8S_POD_NAMESPACE"], values["K8S_POD_NAME"]
}

// mentions returns, by type of plugin, the path of the first configuration of a directory that
// names it anywhere. In a directory that does not exist none does.
func mentions(dir string) (map[string]string, error) {
	files, _, err := readConfigurations(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("configurations that name plugins: %w", err)
	}
	first := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, plugin := range chain.Mentions(files[name].Data) {
			if first[plugin] == "" {
				first[plugin] = filepath.Join(dir, name)
			}
		}
	}
	return first, nil
}
