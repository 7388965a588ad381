package plugin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// maxStdin is the maximum length of the input in bytes. A runtime usually writes a few kB. The
// pod's annotations, which Kubernetes limits to 256 KiB, have at most 1.5 MiB in JSON, because a
// runtime may escape a byte as six. The rest is enough for the configuration and for the result of
// the previous plugin, also with thousands of routes.
const maxStdin = 4 << 20

// stdinTimeout is the time for which a DEL that package skel rejected waits for the end of standard
// input.
const stdinTimeout = time.Second

// A stdinTee contains a copy of the input that package skel reads from standard input.
type stdinTee struct {
	done chan struct{} // closed when data and err are set
	data []byte
	err  error
}

// teeStdin replaces [os.Stdin] by a pipe from which package skel reads the same input. It does not
// wait for the input: skel may refuse the environment before it reads. If the input is longer than
// maxStdin or cannot be read, skel gets nothing. If the pipe cannot be created, os.Stdin stays.
func teeStdin() *stdinTee {
	t := &stdinTee{done: make(chan struct{})}
	from := os.Stdin
	reader, writer, err := os.Pipe()
	if err != nil {
		t.err = err
		close(t.done)
		return t
	}
	os.Stdin = reader
	go func() {
		t.data, t.err = readBounded(from)
		close(t.done)
		// If skel does not read the pipe, this may block until the program ends.
		_, _ = writer.Write(t.data)
		_ = writer.Close()
	}()
	return t
}

// wait returns the input. It returns an error if the input has not ended after stdinTimeout, is
// longer than maxStdin or cannot be read.
func (t *stdinTee) wait() ([]byte, error) {
	select {
	case <-t.done:
		return t.data, t.err
	case <-time.After(stdinTimeout):
		return nil, fmt.Errorf("standard input has not ended after %v", stdinTimeout)
	}
}

// boundStdin reads the input, and replaces [os.Stdin] by a file in memory from which package skel
// reads the same input. It returns an error if the input is longer than maxStdin or cannot be read.
// Unlike teeStdin it waits for the end of the input.
func boundStdin() *types.Error {
	data, err := readBounded(os.Stdin)
	if err == nil {
		os.Stdin, err = fileInMemory(data)
	}
	if err != nil {
		return types.NewError(types.ErrIOFailure, err.Error(), "")
	}
	return nil
}

// fileInMemory returns a file with the content, at its beginning.
func fileInMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err = f.WriteAt(content, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readBounded reads to the end. Input of more than maxStdin bytes is an error.
func readBounded(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxStdin+1))
	if err == nil && len(data) > maxStdin {
		err = fmt.Errorf("more than %d MiB", maxStdin>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return data, nil
}
