package main

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"os/user"
	"strconv"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/colour"
)

// system is all that the command takes from the world around it and gives to it, but for the
// kernel's rules.
type system struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	colour         colour.Painter                        // stdout shows colours
	variable       func(name string) (string, bool)      // of the environment
	users, groups  rules.Lookup                          // ids by name
	addresses      func(*netns.NS) ([]netip.Addr, error) // of the interfaces, in the kernel's order
	resolvConf     string                                // path of resolv.conf(5)
	// validate proves by connections that the capture works, for --run-validation. The error of a
	// capture that does not work is made with invalid.
	validate func(*system, validation) error

	json bool // the user wants results, warnings and errors as JSON
}

// thisSystem is the one that the process runs in.
func thisSystem() *system {
	return &system{
		stdin:      os.Stdin,
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		colour:     colour.For(os.Stdout),
		variable:   os.LookupEnv,
		users:      userID,
		groups:     groupID,
		addresses:  route.Addresses,
		resolvConf: "/etc/resolv.conf",
		validate:   validate,
	}
}

func userID(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, errors.New("there is no such user")
	}
	return numericID(u.Uid)
}

func groupID(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, errors.New("there is no such group")
	}
	return numericID(g.Gid)
}

func numericID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	return uint32(id), err
}
