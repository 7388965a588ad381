package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An Index has the records of a store in memory, by the UIDs of their pods. Use [Store.Index]. It is safe for concurrent use.
type Index struct {
	store Store

	mu sync.Mutex
	// scanned is when the directory had last changed before it was read.
	scanned time.Time
	files   map[string]indexed
	pods    map[string][]*Record
}

// indexed is a file, and the record in it; nil if there is none.
type indexed struct {
	inode   uint64
	changed syscall.Timespec
	record  *Record
}

// Index returns an index of the store, which is empty until [Index.Refresh].
func (s Store) Index() *Index { return &Index{store: s} }

// unsettled is how long a directory may change without another time of change: the kernel's clock for that has ticks of up to 10 ms.
const unsettled = 20 * time.Millisecond

// Refresh reads what has changed since the last time, and costs one question to the kernel if nothing has. Files that hold no record
// are passed over, and those that cannot be read now are tried again.
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
	// Before the reading: what is written while that lasts may have the same time.
	settled := time.Since(info.ModTime()) >= unsettled
	err = x.scan()
	if x.scanned = info.ModTime(); err != nil || !settled {
		x.scanned = time.Time{}
	}
	return err
}

func (x *Index) scan() error {
	names, err := x.store.names()
	if err != nil {
		return err
	}
	files := make(map[string]indexed, len(names))
	pods := make(map[string][]*Record, len(names))
	for _, name := range names {
		if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, suffix) {
			continue
		}
		f, readErr := x.look(name)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		files[name] = f
		if f.record != nil {
			pods[f.record.Pod.UID] = append(pods[f.record.Pod.UID], f.record)
		}
	}
	x.files, x.pods = files, pods
	return err
}

// look returns what a file has, reading it only if it is another than before.
func (x *Index) look(name string) (indexed, error) {
	info, err := os.Lstat(filepath.Join(x.store.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return indexed{}, nil
	}
	if err != nil {
		return indexed{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	f := indexed{inode: stat.Ino, changed: stat.Ctim}
	if known, ok := x.files[name]; ok && known.inode == f.inode && known.changed == f.changed {
		return known, nil
	}
	r, err := x.store.read(name)
	switch {
	case err == nil:
		f.record = &r
	case !IsDamaged(err) && !errors.Is(err, fs.ErrNotExist):
		return f, err
	}
	return f, nil
}

// Of returns the records of a pod's attachments as they were at the last Refresh. They must not be changed, and are the same ones as
// long as nobody has written them anew.
func (x *Index) Of(uid string) []*Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pods[uid]
}
