package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-mesh/sluice/install/chain"
)

// References counts, by type of plugin, the sandboxes whose cached result names the plugin. A runtime that works from this cache
// (CRI-O does) runs the executables for DEL even if the configuration has changed since. Directories that do not exist hold nothing;
// files that are no cached results are passed over.
func References(dirs []string) (map[string]int, error) {
	counts := map[string]int{}
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
			types, err := cachedTypes(filepath.Join(dir, e.Name()), e)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			for plugin := range types {
				counts[plugin]++
			}
		}
	}
	return counts, errors.Join(errs...)
}

// cachedTypes returns the types of the plugins in the chain of a cached result, as libcni keeps it.
func cachedTypes(path string, e fs.DirEntry) (map[string]bool, error) {
	if !e.Type().IsRegular() {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cached struct {
		Kind   string `json:"kind"`
		Config []byte `json:"config"`
	}
	if json.Unmarshal(data, &cached) != nil || cached.Kind != "cniCacheV1" {
		return nil, nil
	}
	types := map[string]bool{}
	if list, err := chain.Parse(cached.Config); err == nil {
		for _, plugin := range list.Types() {
			types[plugin] = true
		}
	} else if plugin := chain.PlainType(cached.Config); plugin != "" {
		types[plugin] = true
	}
	return types, nil
}
