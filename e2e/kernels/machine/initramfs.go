// Package machine boots kernels in virtual machines that have only an initramfs and a console.
package machine

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An Initramfs writes a cpio archive with a kernel's initial file system. The archive is not
// compressed, because an emulated processor decompresses slowly. Parent directories are added
// automatically. Methods without a result record their errors, and Close returns the first recorded
// error.
type Initramfs struct {
	out   *bufio.Writer
	added map[string]bool // names of the entries
	inode int             // number of the last entry
	size  int64           // bytes written
	err   error
}

// NewInitramfs starts an archive that contains the device /dev/console, the console of the
// first process.
func NewInitramfs(w io.Writer) *Initramfs {
	a := &Initramfs{out: bufio.NewWriter(w), added: map[string]bool{}}
	a.addParents("/dev/console")
	const console = 5<<8 | 1 // major, minor
	a.writeHeader("/dev/console", unixCharacter|0o600, 0, console)
	return a
}

// File types, in the mode of an entry (cpio(5), linux/stat.h).
const (
	unixCharacter = 0o020000
	unixDirectory = 0o040000
	unixRegular   = 0o100000
	unixLink      = 0o120000
)

// Bytes adds a file with the content.
func (a *Initramfs) Bytes(name string, perm fs.FileMode, content []byte) {
	a.addFile(name, perm, int64(len(content)), strings.NewReader(string(content)))
}

// Copy adds a copy of a file of the host.
func (a *Initramfs) Copy(name string, perm fs.FileMode, source string) {
	file, err := os.Open(source)
	if err != nil {
		a.recordError(err)
		return
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		a.recordError(err)
		return
	}
	a.addFile(name, perm, info.Size(), file)
}

// Tree adds copies of the files and symbolic links below a directory of the host.
func (a *Initramfs) Tree(name, source string) error {
	return filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		target := name + strings.TrimPrefix(file, source)
		if d.Type()&fs.ModeSymlink != 0 {
			link, err := os.Readlink(file)
			a.Link(target, link)
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		a.Copy(target, info.Mode(), file)
		return nil
	})
}

// Link adds a symbolic link.
func (a *Initramfs) Link(name, target string) {
	if !a.begin(name) {
		return
	}
	a.writeHeader(name, unixLink|0o777, int64(len(target)), 0)
	a.write(strings.NewReader(target))
}

// Close ends the archive.
func (a *Initramfs) Close() error {
	a.writeHeader("/TRAILER!!!", 0, 0, 0)
	a.recordError(a.out.Flush())
	return a.err
}

// addFile adds a regular file.
func (a *Initramfs) addFile(name string, perm fs.FileMode, size int64, content io.Reader) {
	if !a.begin(name) {
		return
	}
	a.writeHeader(name, unixRegular|int(perm.Perm()), size, 0)
	a.write(content)
}

// begin prepares a new entry by adding its parents. It returns false, after recording an error, if
// an entry with the name exists.
func (a *Initramfs) begin(name string) bool {
	if a.added[name] {
		a.recordError(fmt.Errorf("%s was added twice", name))
		return false
	}
	a.added[name] = true
	a.addParents(name)
	return true
}

// addParents adds the missing parent directories of a name.
func (a *Initramfs) addParents(name string) {
	var missing []string
	for dir := path.Dir(name); dir != "/" && !a.added[dir]; dir = path.Dir(dir) {
		a.added[dir] = true
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	for _, dir := range missing {
		a.writeHeader(dir, unixDirectory|0o755, 0, 0)
	}
}

// writeHeader writes the header of an entry in the format newc: hexadecimal numbers, then the name,
// padded to a multiple of four bytes.
func (a *Initramfs) writeHeader(name string, mode int, size int64, device int) {
	name = strings.TrimPrefix(name, "/")
	a.inode++
	const uid, gid, links, time, checksum = 0, 0, 1, 0, 0
	const diskMajor, diskMinor = 0, 0 // of the device that contains the file
	header := "070701"                // magic number
	for _, field := range []int{
		a.inode, mode, uid, gid, links, time, int(size), diskMajor, diskMinor,
		device >> 8, device & 0xff, len(name) + 1, checksum,
	} {
		header += fmt.Sprintf("%08x", field)
	}
	a.write(strings.NewReader(header + name + "\x00"))
}

// write copies the content and pads it to a multiple of four bytes.
func (a *Initramfs) write(r io.Reader) {
	n, err := io.Copy(a.out, r)
	a.recordError(err)
	a.size += n
	for ; a.size%4 != 0; a.size++ {
		a.recordError(a.out.WriteByte(0))
	}
}

// recordError stores the first error.
func (a *Initramfs) recordError(err error) {
	if a.err == nil && err != nil {
		a.err = fmt.Errorf("write the initramfs: %w", err)
	}
}
