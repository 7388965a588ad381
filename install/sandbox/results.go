package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// results contains the runtime's cached results of plugins. A file is read again after a change.
type results struct {
	dirs       []string
	known      map[string]result // by file
	candidates candidates
}

// A result is the content of a file.
type result struct {
	size      int64
	time      time.Time
	candidate candidate // its pod has no UID if the result does not belong to a pod
	err       error     // the reason if the file is not a valid result
}

// refresh reads new and changed files. If ctx ends, there are no candidates until the next refresh.
func (r *results) refresh(ctx context.Context) error {
	var errs fileErrors
	known, all := make(map[string]result, len(r.known)), newCandidates()
	// If ctx ends, keep no candidates: without all files, a path may seem to belong to another pod.
	r.candidates = newCandidates()
	for _, dir := range r.dirs {
		names, err := readNames(dir)
		if err != nil {
			errs.add(err)
			continue
		}
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return errorIn(Runtime, err)
			}
			path := filepath.Join(dir, name)
			c, err := r.read(path)
			if err == nil {
				known[path], err = c, c.err
			}
			if err != nil {
				errs.add(err)
			} else if c.candidate.pod.UID != "" {
				all.add(c.candidate)
			}
		}
	}
	r.known, r.candidates = known, all
	return errs.in(Runtime)
}

// read returns the content of a file. It reads the file only if the file has changed.
func (r *results) read(path string) (result, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return result{}, err
	}
	if known, ok := r.known[path]; ok && known.size == info.Size() &&
		known.time.Equal(info.ModTime()) {
		return known, nil
	}
	if !info.Mode().IsRegular() { // a link is not followed
		return result{}, fmt.Errorf("%s: not a regular file (%s)", path, info.Mode())
	}
	c := result{size: info.Size(), time: info.ModTime()}
	text, err := file.ReadAtMost(path, MaxResultBytes)
	if err != nil {
		return result{}, err
	}
	if c.candidate, err = parseResult(text); err != nil {
		c.err = fmt.Errorf("parse %s: %w", path, err)
	}
	c.candidate.time = c.time
	return c, nil
}

// MaxResultBytes is the maximum size of a cached result in bytes. A result contains the
// configuration of the chain, and twice the pod's annotations, which are limited to 256 KiB.
const MaxResultBytes = 2 << 20

// loopback is the interface of a separate network (cni-loopback), which containerd adds before the
// pod's network. The result of this network is ignored, because it exists before the ADD of the
// chain has ended.
const loopback = "lo"

// parseResult returns the candidate in a result in libcni's format (kind cniCacheV1). It returns
// the zero value if the text is other JSON, or if the result is not for a pod, is for the loopback
// network, or has no path of a network namespace.
func parseResult(text []byte) (candidate, error) {
	var c struct {
		Kind        string      `json:"kind"`
		ContainerID string      `json:"containerId"`
		IfName      string      `json:"ifName"`
		Netns       string      `json:"netns"` // since libcni 1.3
		Args        [][2]string `json:"cniArgs"`
		Result      struct {
			Interfaces []struct {
				Name    string `json:"name"`
				Sandbox string `json:"sandbox"`
			} `json:"interfaces"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		if !json.Valid(text) {
			return candidate{}, err
		}
		return candidate{}, nil // the file is not a cached result
	}
	if c.Kind != "cniCacheV1" || c.ContainerID == "" || c.IfName == loopback {
		return candidate{}, nil
	}
	path := c.Netns
	for _, i := range c.Result.Interfaces {
		if path == "" && i.Name == c.IfName {
			path = i.Sandbox
		}
	}
	args := map[string]string{}
	for _, a := range c.Args {
		if old, twice := args[a[0]]; twice && old != a[1] {
			return candidate{}, fmt.Errorf("the CNI arguments contain two values of %q", a[0])
		}
		args[a[0]] = a[1]
	}
	if path == "" || args["K8S_POD_UID"] == "" {
		return candidate{}, nil
	}
	pod := Pod{
		Namespace: args["K8S_POD_NAMESPACE"], Name: args["K8S_POD_NAME"], UID: args["K8S_POD_UID"],
	}
	return candidate{pod: pod, containerID: c.ContainerID, path: canonicalPath(path)}, nil
}

// readNames returns the names of the files in a directory; nil if it does not exist.
func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}
