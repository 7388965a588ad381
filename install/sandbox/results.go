package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// results contains the runtime's cached results of plugins. A file is read again after a change.
type results struct {
	dirs   []string
	known  map[string]cached // by file
	claims candidates
}

// cached is the content of a file.
type cached struct {
	size   int64
	time   time.Time
	claim  candidate // zero if the result does not belong to a pod
	broken error
}

// refresh reads new and changed files.
func (r *results) refresh(ctx context.Context) error {
	var trouble fileErrors
	known := make(map[string]cached, len(r.known))
	r.claims = newCandidates()
	for _, dir := range r.dirs {
		entries, err := readNames(dir)
		if err != nil {
			trouble.note(err)
			continue
		}
		for _, name := range entries {
			if err := ctx.Err(); err != nil {
				return errorIn(Runtime, err)
			}
			file := filepath.Join(dir, name)
			c, err := r.read(file)
			if err == nil {
				known[file], err = c, c.broken
			}
			if err != nil {
				trouble.note(err)
			} else if c.claim.pod.UID != "" {
				r.claims.add(c.claim)
			}
		}
	}
	r.known = known
	return trouble.in(Runtime)
}

// read returns the content of a file.
func (r *results) read(file string) (cached, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return cached{}, err
	}
	if known, ok := r.known[file]; ok && known.size == info.Size() &&
		known.time.Equal(info.ModTime()) {
		return known, nil
	}
	c := cached{size: info.Size(), time: info.ModTime()}
	text, err := readRegular(file)
	if err != nil {
		return cached{}, err
	}
	if c.claim, err = parseResult(text); err != nil {
		c.broken = fmt.Errorf("%s: %w", file, err)
	}
	c.claim.time = c.time
	return c, nil
}

// maxResultBytes is the maximum size of a cached result in bytes: it contains the configuration of
// the chain, and twice the pod's annotations, which are limited to 256 KiB.
const maxResultBytes = 2 << 20

// readRegular reads a regular file of limited size. It does not follow links and does not block.
func readRegular(file string) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (%s)", file, info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxResultBytes+1))
	if err == nil && len(text) > maxResultBytes {
		err = fmt.Errorf("%s: more than %d bytes", file, maxResultBytes)
	}
	return text, err
}

// loopback is the interface of a separate network that containerd adds before the pod's
// (cni-loopback): its result exists while the ADD of the chain is running.
const loopback = "lo"

// parseResult returns the claim in a result in libcni's format (kind cniCacheV1). It has no pod if
// the text is other JSON, the sandbox has no pod, or the network is the loopback network.
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
		return candidate{}, nil // some other JSON
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
			return candidate{}, fmt.Errorf("two values of %q", a[0])
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

// in returns the errors as an error of a source.
func (t fileErrors) in(s Source) error {
	if t.count > 1 {
		return errorIn(s, fmt.Errorf("%d files cannot be read, among them: %w", t.count, t.first))
	}
	if t.count == 1 {
		return errorIn(s, t.first)
	}
	return nil
}
