// Command runc is what a container engine calls as runc where root has not all capabilities: runc
// refuses to give a container one that it has not itself, and a privileged container asks for all.
// The program takes what root has not out of the container's specification, and becomes the next
// runc in the PATH.
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

// run does not return when it succeeds.
func run(argv []string) error {
	bounding, err := boundingSet()
	if err != nil {
		return err
	}
	for _, file := range specifications(argv) {
		if err := restrict(file, bounding); err != nil {
			return fmt.Errorf("take capabilities out of %s: %w", file, err)
		}
	}
	program, err := next()
	if err != nil {
		return err
	}
	return unix.Exec(program, argv, os.Environ())
}

// specifications are the files with capabilities that a command line of runc names.
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

// next finds the runc after this one in the PATH.
func next() (string, error) {
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
	return "", errors.New("there is no other runc in the PATH")
}
