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
	"time"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// A ReferenceCount contains the number of sandboxes that need a plugin for DEL.
type ReferenceCount struct {
	Sandboxes int
	// AgentPods is the number of these sandboxes that belong to the agent's own pods.
	AgentPods int
}

// References returns, by type of plugin, the number of sandboxes whose cached result names the
// plugin. For DEL, a runtime that uses this cache, such as CRI-O, runs the named executables even
// if the configuration has changed. isAgent reports whether a pod is the agent's; a sandbox whose
// pod is unknown does not count as the agent's. Directories that do not exist and files that are
// not cached results are ignored. If the error is not nil, results that cannot be read, or that the
// runtime is writing, are missing from the counts.
func References(
	dirs []string, isAgent func(namespace, pod string) bool,
) (map[string]ReferenceCount, error) {
	counts := map[string]ReferenceCount{}
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
			agentPod := isAgent(result.pod())
			for plugin := range result.types() {
				count := counts[plugin]
				count.Sandboxes++
				if agentPod {
					count.AgentPods++
				}
				counts[plugin] = count
			}
		}
	}
	return counts, errors.Join(errs...)
}

// A cachedResult contains the used fields of a result in libcni's cache. The zero value represents
// a file that is not a cached result.
type cachedResult struct {
	Kind   string `json:"kind"`
	Config []byte `json:"config"`
	// Args contains pairs of strings. It is decoded separately, so that a sandbox is counted even
	// if Args has another form.
	Args json.RawMessage `json:"cniArgs"`
}

// maxWriteTime is more than the time that a runtime needs to write a cached result, which is less
// than a millisecond.
const maxWriteTime = 5 * time.Second

// readResult reads a file of the cache. It returns the zero value if the file is not a cached
// result. libcni writes results in place. readResult therefore returns an error if the file is
// incomplete, unless the file has been unchanged for maxWriteTime, for example since a crash of the
// node.
func readResult(path string, e fs.DirEntry) (cachedResult, error) {
	if !e.Type().IsRegular() {
		return cachedResult{}, nil
	}
	data, err := file.ReadAtMost(path, sandbox.MaxResultBytes)
	if err != nil {
		return cachedResult{}, err
	}
	if !json.Valid(data) {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()).Abs() < maxWriteTime {
			err = fmt.Errorf("%s is incomplete", path)
		}
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
	} else if plugin := chain.TypeOf(r.Config); plugin != "" {
		types[plugin] = true
	}
	return types
}

// pod returns the pod of the sandbox. The names are empty if the arguments are invalid, or if an
// argument has two different values.
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

// mentionedBy returns, by type of plugin, the path of the first configuration in a directory that
// names the plugin anywhere, even in invalid JSON. unread is the error of the first configuration
// that cannot be read, and may name any plugin. The map is empty if the directory does not exist.
func mentionedBy(dir string, plugins []string) (first map[string]string, unread, err error) {
	files, _, err := readConfigurations(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find configurations that name the plugins: %w", err)
	}
	first = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := files[name].Err; err != nil && unread == nil {
			unread = fmt.Errorf("%s: %w", path, err)
		}
		for _, plugin := range plugins {
			if first[plugin] == "" && chain.Mentions(files[name].Data, plugin) {
				first[plugin] = path
			}
		}
	}
	return first, unread, nil
}
