// Command runc is a wrapper for runc on machines where root lacks some capabilities. runc refuses
// to grant a container a capability that runc lacks, and a privileged container requests all
// capabilities. The wrapper removes the missing capabilities from the specification of the
// container or of the process to execute in it, and then executes the next runc in PATH.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "runc:", err)
		os.Exit(1)
	}
}

// run executes runc, and returns only on failure.
func run(argv []string) error {
	bounding, err := boundingSet()
	if err != nil {
		return err
	}
	for _, file := range specifications(argv) {
		if err := restrict(file, bounding); err != nil {
			return fmt.Errorf("remove capabilities from %s: %w", file, err)
		}
	}
	program, err := nextRunc()
	if err != nil {
		return err
	}
	return unix.Exec(program, argv, os.Environ())
}

// specifications returns the paths of the specifications, config.json of a bundle or the file of a
// process, that a command line of runc names.
func specifications(argv []string) []string {
	var files []string
	for i := 1; i < len(argv); i++ {
		switch previous, value := argv[i-1], argv[i]; previous {
		case "--bundle", "-b":
			files = append(files, filepath.Join(value, "config.json"))
		case "--process", "-p":
			files = append(files, value)
		}
	}
	return files
}

// nextRunc returns the path of the first runc in PATH that is not this program.
func nextRunc() (string, error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(dir, "runc")
		if found, err := os.Stat(file); err == nil && !os.SameFile(self, found) {
			return file, nil
		}
	}
	return "", errors.New("no other runc in PATH")
}
