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

// results are what the runtime has cached of its plugins' results. A file is read again when it has
// changed.
type results struct {
	dirs   []string
	known  map[string]cached // by file
	claims claims
}

// cached is what a file said.
type cached struct {
	size   int64
	time   time.Time
	claim  claim // of no pod if it is not about one
	broken error
}

// refresh reads what is new.
func (r *results) refresh(ctx context.Context) error {
	var trouble troubles
	known := make(map[string]cached, len(r.known))
	r.claims = newClaims()
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

// read returns what a file says.
func (r *results) read(file string) (cached, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return cached{}, err
	}
	if known, ok := r.known[file]; ok && known.size == info.Size() && known.time.Equal(info.ModTime()) {
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

// longestResult is more than any cached result has: it holds the configuration of the chain, and
// the pod's annotations, which have at most 256 KiB, twice.
const longestResult = 2 << 20

// readRegular reads a file that is neither a link nor anything that could hang the reader, nor
// huge.
func readRegular(file string) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (%s)", file, info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, longestResult+1))
	if err == nil && len(text) > longestResult {
		err = fmt.Errorf("%s: more than %d bytes", file, longestResult)
	}
	return text, err
}

// loopback is the interface of a network of its own that containerd adds before the pod's
// (cni-loopback): its result is there while the ADD of the chain is under way.
const loopback = "lo"

// parseResult returns the claim in a result as libcni caches it (kind cniCacheV1). It is of no pod
// if the text is something else in JSON, of a sandbox that is no pod's, or of the loopback network.
func parseResult(text []byte) (claim, error) {
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
			return claim{}, err
		}
		return claim{}, nil // some other JSON
	}
	if c.Kind != "cniCacheV1" || c.ContainerID == "" || c.IfName == loopback {
		return claim{}, nil
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
			return claim{}, fmt.Errorf("two values of %q", a[0])
		}
		args[a[0]] = a[1]
	}
	if path == "" || args["K8S_POD_UID"] == "" {
		return claim{}, nil
	}
	pod := Pod{args["K8S_POD_NAMESPACE"], args["K8S_POD_NAME"], args["K8S_POD_UID"]}
	return claim{pod: pod, containerID: c.ContainerID, path: normal(path)}, nil
}

// readNames returns the names of the files in a directory, none if there is no such directory.
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

// in is the error about all of a source.
func (t troubles) in(s Source) error {
	if t.count > 1 {
		return errorIn(s, fmt.Errorf("%d files cannot be read, among them: %w", t.count, t.first))
	}
	if t.count == 1 {
		return errorIn(s, t.first)
	}
	return nil
}
