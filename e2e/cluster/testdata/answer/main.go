// Command answer is the program of the tests' pods.
//
//	answer serve       answers HTTP on port 8080 with the client's address
//	answer get URL     prints the response of a server
//	answer mounts DIR  prints the number of namespaces that are mounted in a directory
//	answer write FILE  writes a file
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1], append(os.Args[2:], "")[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(verb, argument string) error {
	switch verb {
	case "serve":
		return http.ListenAndServe(":8080", http.HandlerFunc(serve))
	case "get":
		response, err := http.Get(argument)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, response.Body)
		return err
	case "mounts":
		return countMounts(argument)
	case "write":
		return os.WriteFile(argument, []byte("from a pod\n"), 0o644)
	default:
		return fmt.Errorf("unknown verb %q", verb)
	}
}

// serve answers a request with the client's address.
func serve(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello", r.RemoteAddr) }

// countMounts prints the number of namespaces that are mounted in a directory.
func countMounts(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	count := 0
	for _, entry := range entries {
		var info unix.Statfs_t
		if err := unix.Statfs(filepath.Join(dir, entry.Name()), &info); err != nil {
			return err
		}
		if info.Type == unix.NSFS_MAGIC {
			count++
		}
	}
	fmt.Println(count)
	return nil
}
