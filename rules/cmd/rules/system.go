package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

// system contains the command's access to its environment, except the kernel's rules.
type system struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	color          color.Painter                    // stdout supports colors
	variable       func(name string) (string, bool) // environment variables
	users, groups  rules.Lookup                     // ids by name
	// addresses returns the addresses of the interfaces, in the kernel's order.
	addresses  func(*netns.NS) ([]netip.Addr, error)
	resolvConf string // path of resolv.conf(5)
	// validate tests capture with connections, for --run-validation. If capture does not work, the
	// error has the exit code exitInvalid.
	validate func(*system, validation) error

	json bool // results, warnings and errors are JSON
}

// thisSystem returns the system of this process.
func thisSystem() *system {
	return &system{
		stdin:      os.Stdin,
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		color:      color.For(os.Stdout),
		variable:   os.LookupEnv,
		users:      userID,
		groups:     groupID,
		addresses:  route.Addresses,
		resolvConf: "/etc/resolv.conf",
		validate:   validate,
	}
}

// open opens a file, or standard input if the path is "-".
func (s *system) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(s.stdin), nil
	}
	return os.Open(path)
}

// checkFile returns the error of opening or reading a file of [system.open], as far as it is known
// before the file is opened. Commands open files after their inputs are parsed; with this check,
// all wrong values are reported together.
func checkFile(path string) error {
	if path == "-" {
		return nil
	}
	if err := unix.Access(path, unix.R_OK); err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return &os.PathError{Op: "read", Path: path, Err: unix.EISDIR}
	}
	return nil
}

// readAtMost reads a text of at most limit bytes, which must be whole MiB. name is the name of the
// text in errors.
func readAtMost(r io.Reader, name string, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s: larger than %d MiB", name, limit>>20)
	}
	return text, nil
}

// sourceName returns the name of a file of [system.open] in messages.
func sourceName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// userID returns the id of the user with a name.
func userID(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, errors.New("there is no such user")
	}
	return numericID(u.Uid)
}

// groupID returns the id of the group with a name.
func groupID(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, errors.New("there is no such group")
	}
	return numericID(g.Gid)
}

// numericID parses an id of package user.
func numericID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	return uint32(id), err
}
