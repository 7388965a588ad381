package repair

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/file"
	"github.com/sluice-mesh/sluice/rules"
)

// An Entry is the record of a pod that was repaired in place. It replaces the record of ADD.
type Entry struct {
	// UID is the pod's UID. Namespace and Name are for display.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Redirect contains the parameters of its rules, Backend is their backend.
	Redirect rules.Redirect     `json:"redirect"`
	Backend  compat.BackendName `json:"engine"`
	// Time is the time of the repair.
	Time time.Time `json:"time"`
}

// A Store is a directory with a small file for each entry. Like the records of ADD it is on a
// tmpfs, because after a reboot the sandboxes are new. The methods are safe for concurrent use.
type Store struct{ dir string }

// In returns the store in the directory shared by agent and plugin. It is created when needed.
func In(runDir string) Store { return Store{filepath.Join(runDir, "repaired")} }

const suffix = ".json"

// file returns the path of a pod's entry. The UID of a static pod can be set by users.
func (l Store) file(uid string) (string, error) {
	if uid == "" || strings.HasPrefix(uid, ".") || strings.ContainsAny(uid, "/\x00") ||
		len(uid) > 200 {
		return "", fmt.Errorf("pod uid %q is not a file name", uid)
	}
	return filepath.Join(l.dir, uid+suffix), nil
}

// Put stores an entry and replaces an earlier one.
func (l Store) Put(e Entry) error {
	if err := l.put(e); err != nil {
		return fmt.Errorf("store the repair of pod %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}

func (l Store) put(e Entry) error {
	path, err := l.file(e.UID)
	if err != nil {
		return err
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	return file.WriteNoSync(path, append(data, '\n'))
}

// List returns all valid entries by the UIDs of their pods. The error names the other files.
func (l Store) List() (map[string]Entry, error) {
	files, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Entry{}, nil
	}
	entries := make(map[string]Entry, len(files))
	for _, f := range files {
		uid, found := strings.CutSuffix(f.Name(), suffix)
		if !found || strings.HasPrefix(uid, ".") {
			continue
		}
		e, readErr := read(filepath.Join(l.dir, f.Name()))
		if readErr == nil && e.UID != uid {
			readErr = fmt.Errorf("%s: it belongs to pod %q", f.Name(), e.UID)
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		entries[uid] = e
	}
	return entries, err
}

func read(path string) (Entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	if err := json.Unmarshal(data, &e); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := e.Redirect.Validate(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

// Remove removes the entry of a pod, if there is one.
func (l Store) Remove(uid string) error {
	path, err := l.file(uid)
	if err != nil {
		return nil // Put does not accept the UID
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
