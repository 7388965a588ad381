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

// An Entry is the record of a pod that was repaired in place. It takes the place of the record of
// ADD, which does not exist because the pod started without the plugin.
type Entry struct {
	// UID is the pod's UID.
	UID string `json:"uid"`
	// Namespace and Name identify the pod in the API server.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Redirect contains the parameters of the pod's rules.
	Redirect rules.Redirect `json:"redirect"`
	// Backend is the backend in which the rules are installed.
	Backend compat.BackendName `json:"engine"`
	// Time is the time of the repair.
	Time time.Time `json:"time"`
}

// version is the version of the format. A file without a version has version 1, because earlier
// agents wrote none. A new parameter of the rules needs a new version: an older agent would
// otherwise repair the pod to rules without the parameter.
const version = 1

// storedEntry is the format of the file.
type storedEntry struct {
	Version int `json:"version"`
	Entry
}

// A Store is a directory with a small file for each entry. Like the records of ADD, it should be on
// a tmpfs, because a reboot replaces all sandboxes. The methods are safe for concurrent use.
type Store struct{ dir string }

// StoreIn returns the store in the run directory, which agent and plugin share. The store's
// directory is created when the first entry is stored.
func StoreIn(runDir string) Store { return Store{filepath.Join(runDir, "repaired")} }

const suffix = ".json"

// file returns the path of a pod's entry. It checks the UID, because users can set the UID of a
// static pod. The limit of 200 bytes leaves room in a file name (255 bytes) for the suffix and for
// the name of a temporary file.
func (s Store) file(uid string) (string, error) {
	if uid == "" || strings.HasPrefix(uid, ".") || strings.ContainsAny(uid, "/\x00") ||
		len(uid) > 200 {
		return "", fmt.Errorf("pod UID %q cannot be part of a file name", uid)
	}
	return filepath.Join(s.dir, uid+suffix), nil
}

// Put stores an entry and replaces an earlier entry of the same pod.
func (s Store) Put(e Entry) error {
	if err := s.put(e); err != nil {
		return fmt.Errorf("store the repair of pod %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}

func (s Store) put(e Entry) error {
	path, err := s.file(e.UID)
	if err != nil {
		return err
	}
	data, err := json.Marshal(storedEntry{version, e})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return file.WriteNoSync(path, append(data, '\n'))
}

// List returns all valid entries by the UIDs of their pods. The error names the invalid files.
func (s Store) List() (map[string]Entry, error) {
	files, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Entry{}, nil
	}
	entries := make(map[string]Entry, len(files))
	for _, f := range files {
		uid, found := strings.CutSuffix(f.Name(), suffix)
		if !found || strings.HasPrefix(uid, ".") {
			continue
		}
		e, readErr := read(filepath.Join(s.dir, f.Name()))
		if readErr == nil && e.UID != uid {
			readErr = fmt.Errorf("%s: the entry belongs to the pod with UID %q", f.Name(), e.UID)
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		entries[uid] = e
	}
	return entries, err
}

// read reads the entry in a file. It returns an error if a newer agent wrote the entry, or if the
// entry's parameters or its backend are invalid.
func read(path string) (Entry, error) {
	data, err := file.ReadRegular(path)
	if err != nil {
		return Entry{}, err
	}
	var s storedEntry
	if err := file.DecodeVersioned(data, version, &s); err != nil {
		return Entry{}, fmt.Errorf("decode %s: %w", path, err)
	}
	if err := s.Redirect.Validate(); err != nil {
		return Entry{}, fmt.Errorf("%s: the parameters are invalid: %w", path, err)
	}
	if _, err := compat.Choose(s.Backend); err != nil {
		return Entry{}, fmt.Errorf("%s: the backend is invalid: %w", path, err)
	}
	return s.Entry, nil
}

// Remove removes the entry of a pod, if it exists.
func (s Store) Remove(uid string) error {
	path, err := s.file(uid)
	if err != nil {
		return nil // there is no entry, because Put does not accept the UID
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
