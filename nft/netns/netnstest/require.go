// Package netnstest creates network namespaces for tests that send packets: a
// single namespace, a pod connected to a neighbor, and a namespace owned by
// another user namespace.
//
// Functions with a [testing.TB] parameter fail the test on errors and clean up
// when the test ends. If root privileges or a program are missing, they skip the
// test. If SLUICE_REQUIRE=1 or CI=true is set in the environment, they fail the test
// instead, so that a complete run cannot skip tests silently.
package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/owner"
)

// RequireRoot skips the test unless it runs as root of a user namespace with
// CAP_NET_ADMIN and CAP_SYS_ADMIN.
func RequireRoot(t testing.TB) {
	t.Helper()
	if uid := os.Geteuid(); uid != 0 {
		skipOrFail(t, "the test needs root to create network namespaces, but runs as uid %d:"+
			" run it with sudo or unshare -rn", uid)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // capabilities 0-31, 32-63
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		t.Fatalf("capget: %v", err)
	}
	const want = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN
	if data[0].Effective&want != want {
		skipOrFail(t, "the test needs CAP_NET_ADMIN and CAP_SYS_ADMIN to create network namespaces:"+
			" a container must be privileged")
	}
}

// RequireIDs skips the test unless it can open sockets as uid and gid. Root of a
// user namespace that maps only root (unshare -r) cannot.
func RequireIDs(t testing.TB, uid, gid int) {
	t.Helper()
	RequireRoot(t)
	err := owner.As(uid, gid, func() error { return nil })
	switch {
	case errors.Is(err, unix.EPERM):
		skipOrFail(t, "the test needs uid %d and gid %d, which this user namespace lacks:"+
			" run it with sudo", uid, gid)
	case err != nil:
		t.Fatal(err)
	}
}

// RequireBinary searches PATH and [SystemPath] for a program, and returns the path
// of the program. If the program is missing, RequireBinary skips the test and names
// the Debian package to install.
func RequireBinary(t testing.TB, name string) string {
	t.Helper()
	path, err := LookBinary(name)
	if err != nil {
		skipOrFail(t, "%v", err)
	}
	return path
}

// SystemPath lists the system directories that PATH often lacks, in the form of PATH.
const SystemPath = "/usr/sbin:/sbin"

// LookBinary is like [RequireBinary], but returns an error if the program is missing. The error
// names the program and its package.
func LookBinary(name string) (string, error) {
	files := []string{name}
	for _, dir := range filepath.SplitList(SystemPath) {
		files = append(files, filepath.Join(dir, name))
	}
	for _, file := range files {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %s is missing: apt-get install %s", name, debianPackage(name))
}

// debianPackage returns the Debian package that contains a program.
func debianPackage(program string) string {
	switch {
	case program == "nft":
		return "nftables"
	case strings.HasPrefix(program, "iptables"), strings.HasPrefix(program, "ip6tables"),
		strings.HasPrefix(program, "xtables"):
		return "iptables"
	case program == "ip", program == "ss", program == "tc":
		return "iproute2"
	case program == "nsenter", program == "unshare", program == "setpriv":
		return "util-linux"
	case program == "cat":
		return "coreutils"
	}
	return program
}

// RequireBridgeNetfilter skips the test if the module br_netfilter is not loaded.
func RequireBridgeNetfilter(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		skipOrFail(t, "the module br_netfilter is not loaded: run modprobe br_netfilter")
	}
}

// skipOrFail skips the test, or fails it if [MustNotSkip] returns true.
func skipOrFail(t testing.TB, format string, args ...any) {
	t.Helper()
	if MustNotSkip() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// MustNotSkip reports whether a missing prerequisite fails the test: SLUICE_REQUIRE=1 or CI=true.
func MustNotSkip() bool { return os.Getenv("SLUICE_REQUIRE") == "1" || os.Getenv("CI") == "true" }
