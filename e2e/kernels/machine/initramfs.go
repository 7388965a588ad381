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

// An Initramfs writes a cpio archive with a kernel's initial file system. It is not compressed,
// because an emulated processor decompresses slowly. Parent directories are added automatically.
// Close returns the first error.
type Initramfs struct {
	out   *bufio.Writer
	seen  map[string]bool
	inode int   // number of the last entry
	size  int64 // bytes written
	err   error
}

// NewInitramfs starts an archive that contains the console of the first process.
func NewInitramfs(w io.Writer) *Initramfs {
	a := &Initramfs{out: bufio.NewWriter(w), seen: map[string]bool{}}
	a.parents("/dev/console")
	const console = 5<<8 | 1 // major, minor
	a.entry("/dev/console", unixCharacter|0o600, 0, console)
	return a
}

// File types, in the mode of an entry (cpio(5), linux/stat.h).
const (
	unixCharacter = 0o020000
	unixDirectory = 0o040000
	unixRegular   = 0o100000
	unixLink      = 0o120000
)

// Bytes adds a file.
func (a *Initramfs) Bytes(name string, perm fs.FileMode, content []byte) {
	a.file(name, perm, int64(len(content)), strings.NewReader(string(content)))
}

// Copy adds a copy of a file of the host.
func (a *Initramfs) Copy(name string, perm fs.FileMode, source string) {
	file, err := os.Open(source)
	if err != nil {
		a.fail(err)
		return
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		a.fail(err)
		return
	}
	a.file(name, perm, info.Size(), file)
}

// Tree adds copies of the files below a directory of the host.
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
	a.entry(name, unixLink|0o777, int64(len(target)), 0)
	a.write(strings.NewReader(target))
}

// Close ends the archive.
func (a *Initramfs) Close() error {
	a.entry("/TRAILER!!!", 0, 0, 0)
	a.fail(a.out.Flush())
	return a.err
}

// file adds a regular file.
func (a *Initramfs) file(name string, perm fs.FileMode, size int64, content io.Reader) {
	if !a.begin(name) {
		return
	}
	a.entry(name, unixRegular|int(perm.Perm()), size, 0)
	a.write(content)
}

// begin adds the parents of a new entry. It returns false if an entry with the name exists.
func (a *Initramfs) begin(name string) bool {
	if a.seen[name] {
		a.fail(fmt.Errorf("%s was added twice", name))
		return false
	}
	a.seen[name] = true
	a.parents(name)
	return true
}

// parents adds the missing parent directories of a name.
func (a *Initramfs) parents(name string) {
	var missing []string
	for dir := path.Dir(name); dir != "/" && !a.seen[dir]; dir = path.Dir(dir) {
		a.seen[dir] = true
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	for _, dir := range missing {
		a.entry(dir, unixDirectory|0o755, 0, 0)
	}
}

// entry writes the header of an entry in the format newc: hexadecimal numbers, then the name,
// padded to a multiple of four bytes.
func (a *Initramfs) entry(name string, mode int, size int64, device int) {
	name = strings.TrimPrefix(name, "/")
	a.inode++
	header := "070701"
	for _, field := range []int{
		a.inode, mode, 0, 0, 1, 0, int(size), 0, 0, device >> 8, device & 0xff, len(name) + 1, 0,
	} {
		header += fmt.Sprintf("%08x", field)
	}
	a.write(strings.NewReader(header + name + "\x00"))
}

// write copies the content and pads it to a multiple of four bytes.
func (a *Initramfs) write(r io.Reader) {
	n, err := io.Copy(a.out, r)
	a.fail(err)
	a.size += n
	for ; a.size%4 != 0; a.size++ {
		a.fail(a.out.WriteByte(0))
	}
}

// fail records the first error.
func (a *Initramfs) fail(err error) {
	if a.err == nil && err != nil {
		a.err = fmt.Errorf("initramfs: %w", err)
	}
}
