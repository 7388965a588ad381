package record

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An Index keeps the records of a store in memory, by the UIDs of their pods. Create an Index with
// [Store.Index]. Its methods are safe for concurrent use.
type Index struct {
	store Store

	mu sync.Mutex
	// scanned is the modification time of the directory when it was last read completely. It is
	// zero if the next Refresh must read the directory in any case.
	scanned time.Time
	files   map[string]indexedFile
	pods    map[string][]*Record
	latest  time.Time // see Latest
}

// An indexedFile is a file at the time of a scan.
type indexedFile struct {
	version fileVersion
	record  *Record // nil if the file is unusable or was removed during the scan
	err     error   // the reason if the file is unusable
}

// A fileVersion changes when the file of a record is replaced or written. The zero value is the
// version of a missing file.
type fileVersion struct {
	inode   uint64
	changed syscall.Timespec
}

// version returns the version of the file with the name.
func (s Store) version(name string) (fileVersion, error) {
	info, err := os.Lstat(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return fileVersion{}, nil
	}
	if err != nil {
		return fileVersion{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fileVersion{inode: stat.Ino, changed: stat.Ctim}, nil
}

// Index returns an index of the store, which is empty until [Index.Refresh].
func (s Store) Index() *Index { return &Index{store: s} }

// mtimeGranularity is more than the interval within which two changes of a directory may have the
// same modification time: the kernel's clock for file times has ticks of up to 10 ms.
const mtimeGranularity = 20 * time.Millisecond

// Refresh reads the files that have changed since the last Refresh. Without changes it costs one
// system call. It skips files without a record, and retries files that could not be read.
func (x *Index) Refresh() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	info, err := os.Stat(x.store.dir)
	if errors.Is(err, fs.ErrNotExist) {
		x.scanned, x.files, x.pods = time.Time{}, nil, nil
		return nil
	}
	if err != nil {
		return err
	}
	if info.ModTime().Equal(x.scanned) {
		return nil
	}
	// If the directory changed just now, a file that is written during the scan may not change the
	// directory's modification time. The next Refresh must then read the directory again.
	isSettled := time.Since(info.ModTime()) >= mtimeGranularity
	err = x.scan()
	if x.scanned = info.ModTime(); err != nil || !isSettled {
		x.scanned = time.Time{}
	}
	return err
}

// scan reads the directory, and the files that have changed.
func (x *Index) scan() error {
	names, err := x.store.names()
	if err != nil {
		return err
	}
	var latest time.Time // of the records that are new
	files := make(map[string]indexedFile, len(names))
	pods := make(map[string][]*Record, len(names))
	for _, name := range names {
		if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, suffix) {
			continue
		}
		f, readErr := x.readFile(name)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		files[name] = f
		if f.record != nil {
			pods[f.record.Pod.UID] = append(pods[f.record.Pod.UID], f.record)
			known := x.files[name].record
			isNew := known == nil || !known.Time.Equal(f.record.Time)
			if isNew && f.record.Time.After(latest) {
				latest = f.record.Time
			}
		}
	}
	if !latest.IsZero() {
		x.latest = latest
	}
	x.files, x.pods = files, pods
	return err
}

// readFile returns the file with its record. It reads the file only if the file has changed since
// the last scan.
func (x *Index) readFile(name string) (indexedFile, error) {
	version, err := x.store.version(name)
	f := indexedFile{version: version}
	if err != nil || version == (fileVersion{}) {
		return f, err
	}
	if known, ok := x.files[name]; ok && known.version == version {
		return known, nil
	}
	r, err := x.store.read(name)
	switch {
	case err == nil:
		f.record = &r
	case IsUnusable(err):
		f.err = err
	case !errors.Is(err, fs.ErrNotExist):
		return f, err
	}
	return f, nil
}

// Of returns the records of a pod's attachments as of the last Refresh. Callers must not change
// them. The pointer to a record stays the same until the record's file is written again.
func (x *Index) Of(uid string) []*Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pods[uid]
}

// All returns the records of all pods as of the last Refresh, in no particular order. Callers must
// not change them.
func (x *Index) All() []*Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(x.pods))...)
}

// Unusable returns the errors of the files without a usable record as of the last Refresh; see
// [IsUnusable].
func (x *Index) Unusable() []error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(x.files)) {
		if err := x.files[name].err; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Latest returns the time of the latest ADD whose record a Refresh has found, even if the record
// has been removed since. It returns the zero time if no Refresh has found a record. If one Refresh
// finds several new records, the latest time counts. If a later Refresh finds a new record, its
// time counts even if it is earlier, because the node's clock may have been set back.
func (x *Index) Latest() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.latest
}
