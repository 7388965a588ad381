package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// mounts lists the mounts that keep one of the namespaces alive, such as a file under /run/netns.
// Call mounts while the namespaces are open, because the kernel reuses their numbers.
func mounts(namespaces ...*netns.NS) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		for _, ns := range namespaces {
			if strings.Contains(line, ns.ID().String()) {
				found = append(found, "mount "+strings.TrimSpace(line))
			}
		}
	}
	return found, nil
}

// remainingReferences waits for at most a second until no thread or descriptor of this process
// refers to another network namespace, and returns the remaining references. The kernel needs some
// time to end a thread.
func remainingReferences() (found []string, err error) {
	for start := time.Now(); time.Since(start) < time.Second; time.Sleep(time.Millisecond) {
		if found, err = references(); err != nil || len(found) == 0 {
			break
		}
	}
	return found, err
}

// references lists the threads and descriptors of this process that refer to a network namespace
// other than its own.
func references() ([]string, error) {
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, pattern := range []string{"/proc/self/task/*/ns/net", "/proc/self/fd/*"} {
		links, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, link := range links {
			// An error means that the thread or descriptor no longer exists.
			if ns, err := os.Readlink(link); err == nil && strings.HasPrefix(ns, "net:[") &&
				ns != home {
				found = append(found, fmt.Sprintf("%s in %s", link, ns))
			}
		}
	}
	return found, nil
}
